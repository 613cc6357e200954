#include "watch_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

namespace fathom {
namespace {

size_t bytes_of(int64_t n_streams, int64_t n_letters) {
  return static_cast<size_t>(n_streams * (n_letters + 1)) * sizeof(int64_t);
}

}  // namespace

int64_t monotonic_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

Result<WatchFile> WatchFile::open(const std::string& path, int64_t n_streams, int64_t n_letters) {
  const size_t n_bytes = bytes_of(n_streams, n_letters);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* mapped = MAP_FAILED;
  if (file >= 0 && ::ftruncate(file, static_cast<off_t>(n_bytes)) == 0) {
    mapped = ::mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  const int why = errno;
  if (file >= 0) ::close(file);
  if (mapped == MAP_FAILED) return io_error(path + ": cannot be mapped: " + std::strerror(why));
  return WatchFile(static_cast<std::atomic<int64_t>*>(mapped), n_streams, n_letters);
}

WatchFile::WatchFile(WatchFile&& other) noexcept
    : cells_(std::exchange(other.cells_, nullptr)),
      n_streams_(other.n_streams_),
      n_letters_(other.n_letters_) {}

WatchFile::~WatchFile() {
  if (cells_ != nullptr) ::munmap(cells_, bytes_of(n_streams_, n_letters_));
}

}  // namespace fathom
