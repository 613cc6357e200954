#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace fathom {
namespace {

Error file_error(const std::string& path, const char* action) {
  const int saved = errno;
  const std::string message = path + ": cannot " + action + ": " + std::strerror(saved);
  return saved == ENOENT ? not_found(message) : io_error(message);
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

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

}  // namespace

Result<std::string> read_file(const std::string& path, uint64_t max_bytes) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return file_error(path, "open");
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
  const std::string temporary = path + ".tmp";
  {
    const FileDescriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) return file_error(temporary, "create");
    FATHOM_RETURN_IF_ERROR(write_all(file.get(), content, temporary));
    if (::fsync(file.get()) != 0) return file_error(temporary, "sync");
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return file_error(path, "rename to");
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const FileDescriptor directory(
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) ::fsync(directory.get());
  return {};
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return file_error(path, "open");
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
