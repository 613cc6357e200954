#pragma once

// Files as values: read whole, map read-only, replace atomically. Errors name the path. Nothing
// here waits for a pipe or a device: those are refused.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

// Reads a whole file; refuses one larger than max_bytes.
Result<std::string> read_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 32);

// Whether an optional file, or folder, is there. False where nothing has its name; an error where
// the name leads nowhere (a link to nothing or to itself), to something else, or cannot be looked
// at: what somebody put there is never taken for absent.
Result<bool> has_file(const std::string& path);
Result<bool> has_folder(const std::string& path);

// Writes a temporary file beside path, syncs it, renames it over path and syncs the folder: a
// reader sees the old or the new content, never a part, and of two writers one wins whole. Removes
// temporary files of path that dead writers left.
Result<void> write_file_atomic(const std::string& path, std::string_view content);

// Whether the disk of an existing folder has room for `bytes` more; kExhausted, with both numbers.
// Passes where the system does not say.
Result<void> check_room(const std::string& folder, uint64_t bytes);

// Makes renames in a folder last, where the file system can.
void sync_folder(const std::string& folder);

// A read-only mapping of a whole file. Movable; the bytes live as long as the object.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

}  // namespace fathom
