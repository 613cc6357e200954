#pragma once

// An open file of the system, and what it says when it refuses.

#include <string>

#include "base/result.h"

namespace fathom {

// Closes itself. Movable; -1: none.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // False, with errno, where the system reports a late failure of writing.
  bool close();

 private:
  int fd_ = -1;
};

// "PATH: cannot ACTION: what errno means"; kNotFound where there is no such file.
Error file_error(const std::string& path, const char* action);

}  // namespace fathom
