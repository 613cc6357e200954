#include "base/descriptor.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace fathom {

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileDescriptor::~FileDescriptor() { close(); }

bool FileDescriptor::close() { return fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0; }

Error file_error(const std::string& path, const char* action) {
  const int saved = errno;
  const std::string message =
      (path.empty() ? "\"\"" : path) + ": cannot " + action + ": " + std::strerror(saved);
  return saved == ENOENT ? not_found(message) : io_error(message);
}

}  // namespace fathom
