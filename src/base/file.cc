#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/descriptor.h"
#include "base/temporary.h"

namespace fathom {
namespace {

// Without waiting for whoever has the other end of a pipe.
FileDescriptor open_to_read(const std::string& path) {
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

Result<uint64_t> regular_size(const FileDescriptor& file, const std::string& path) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return file_error(path, "stat");
  if (!S_ISREG(status.st_mode)) return invalid(path + ": expected a regular file");
  return static_cast<uint64_t>(status.st_size);
}

Result<void> write_all(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(path, "write");
    content.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

// Nothing where the name is not there; what kind of file it leads to.
Result<std::optional<mode_t>> mode_of(const std::string& path, const std::string& wanted) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return std::optional<mode_t>();
    return file_error(path, "look at it");
  }
  if (::stat(path.c_str(), &status) == 0) return std::optional<mode_t>(status.st_mode);
  if (errno != ENOENT && errno != ELOOP) return file_error(path, "look at it");
  return invalid(path + ": wanted " + wanted + ", found a link that leads nowhere");
}

}  // namespace

Result<bool> has_file(const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(const std::optional<mode_t> mode, mode_of(path, "a file or none"));
  if (!mode || S_ISREG(*mode)) return mode.has_value();
  return invalid(path + ": expected a regular file");
}

Result<bool> has_folder(const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(const std::optional<mode_t> mode, mode_of(path, "a folder or none"));
  if (!mode || S_ISDIR(*mode)) return mode.has_value();
  return invalid(path + ": wanted a folder or none, found another file");
}

Result<std::string> read_file(const std::string& path, uint64_t max_bytes) {
  const FileDescriptor file = open_to_read(path);
  if (!file.is_open()) return file_error(path, "open");
  FATHOM_ASSIGN_OR_RETURN(const uint64_t size, regular_size(file, path));
  if (size > max_bytes) {
    return exhausted(path + ": expected at most " + std::to_string(max_bytes) + " bytes, found " +
                     std::to_string(size));
  }
  std::string content(size, '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = ::read(file.get(), content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(path, "read");
    if (n == 0) return io_error(path + ": became shorter while it was read");
    done += static_cast<size_t>(n);
  }
  return content;
}

Result<void> write_file_atomic(const std::string& path, std::string_view content) {
  const std::filesystem::path target(path);
  const std::string folder = target.parent_path().string();
  remove_abandoned(folder, target.filename().string() + ".");
  FATHOM_ASSIGN_OR_RETURN(TemporaryFile file, TemporaryFile::create(path));
  FATHOM_RETURN_IF_ERROR(write_all(file.fd(), content, file.name()));
  FATHOM_RETURN_IF_ERROR(file.sync());
  FATHOM_RETURN_IF_ERROR(file.publish());
  sync_folder(folder);
  return {};
}

Result<void> check_room(const std::string& folder, uint64_t bytes) {
  std::error_code code;
  const std::filesystem::space_info space = std::filesystem::space(folder, code);
  if (code || space.available >= bytes) return {};
  return exhausted(folder + ": wanted " + std::to_string(bytes) +
                   " bytes free on its disk, found " + std::to_string(space.available));
}

void sync_folder(const std::string& folder) {
  const FileDescriptor directory(
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.is_open()) ::fsync(directory.get());
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const FileDescriptor file = open_to_read(path);
  if (!file.is_open()) return file_error(path, "open");
  FATHOM_ASSIGN_OR_RETURN(const uint64_t size, regular_size(file, path));
  MappedFile mapped;
  mapped.path_ = path;
  mapped.size_ = size;
  if (size > 0) {
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
    if (data == MAP_FAILED) return file_error(path, "map");
    mapped.data_ = static_cast<const std::byte*>(data);
  }
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace fathom
