#include "cache/store/disk.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/check.h"

namespace fathom {
namespace {

constexpr int kTries = 3;

class UringQueue : public IoQueue {
 public:
  static std::unique_ptr<IoQueue> make(int depth) {
    auto queue = std::make_unique<UringQueue>();
    if (::io_uring_queue_init(static_cast<unsigned>(depth), &queue->ring_, 0) != 0) return nullptr;
    queue->is_open_ = true;
    return queue;
  }
  UringQueue() = default;
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;
  ~UringQueue() override {
    if (is_open_) ::io_uring_queue_exit(&ring_);
  }

  void submit(const IoRequest& request) override {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    FATHOM_CHECK(entry != nullptr);
    const auto offset = static_cast<uint64_t>(request.offset);
    const auto size = static_cast<unsigned>(request.bytes.size());
    switch (request.kind) {
      case IoKind::kRead:
        ::io_uring_prep_read(entry, request.fd, request.bytes.data(), size, offset);
        break;
      case IoKind::kWrite:
        ::io_uring_prep_write(entry, request.fd, request.bytes.data(), size, offset);
        break;
      case IoKind::kSync:
        ::io_uring_prep_fsync(entry, request.fd, IORING_FSYNC_DATASYNC);
        break;
    }
    ::io_uring_sqe_set_data64(entry, request.tag);
    // At once, so that the disk works while the caller looks at what came before. What the kernel
    // did not take now goes along with the next call.
    ::io_uring_submit(&ring_);
  }

  IoCompletion wait() override {
    io_uring_cqe* entry = nullptr;
    while (::io_uring_peek_cqe(&ring_, &entry) != 0) {
      const int failed = ::io_uring_submit_and_wait(&ring_, 1);
      FATHOM_CHECK(failed >= 0 || failed == -EINTR || failed == -EAGAIN || failed == -EBUSY);
    }
    const IoCompletion completion = {::io_uring_cqe_get_data64(entry), entry->res};
    ::io_uring_cqe_seen(&ring_, entry);
    return completion;
  }

 private:
  io_uring ring_ = {};
  bool is_open_ = false;
};

// Does the work of a request when somebody waits for it.
class PlainQueue : public IoQueue {
 public:
  void submit(const IoRequest& request) override { waiting_.push_back(request); }

  IoCompletion wait() override {
    FATHOM_CHECK(!waiting_.empty());
    const IoRequest request = waiting_.front();
    waiting_.pop_front();
    int64_t result = 0;
    switch (request.kind) {
      case IoKind::kRead:
        result = ::pread(request.fd, request.bytes.data(), request.bytes.size(), request.offset);
        break;
      case IoKind::kWrite:
        result = ::pwrite(request.fd, request.bytes.data(), request.bytes.size(), request.offset);
        break;
      case IoKind::kSync:
        result = ::fdatasync(request.fd);
        break;
    }
    return {request.tag, result < 0 ? -errno : result};
  }

 private:
  std::deque<IoRequest> waiting_;
};

// Whether files of the folder can be opened for transfers past the page cache.
bool has_direct(const std::string& folder) {
  const std::string path = folder + "/.fathom-probe-" + std::to_string(::getpid());
  const FileDescriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC | O_NOFOLLOW, 0600));
  ::unlink(path.c_str());
  return file.is_open();
}

class SystemDisk : public Disk {
 public:
  SystemDisk(bool direct, bool uring) : direct_(direct), uring_(uring) {}

  std::unique_ptr<IoQueue> queue(int depth) override {
    std::unique_ptr<IoQueue> queue = uring_ ? UringQueue::make(depth) : nullptr;
    return queue != nullptr ? std::move(queue) : std::make_unique<PlainQueue>();
  }

  Result<FileDescriptor> open(const std::string& path, bool create) override {
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (direct_ ? O_DIRECT : 0) |
                      (create ? O_CREAT | O_EXCL : 0);
    FileDescriptor file(::open(path.c_str(), flags, 0600));
    if (!file.is_open()) return file_error(path, create ? "create" : "open");
    return file;
  }

  Result<int64_t> size(const std::string& path) override {
    struct stat status = {};
    if (::lstat(path.c_str(), &status) != 0) return file_error(path, "stat");
    if (!S_ISREG(status.st_mode)) return invalid(path + ": expected a regular file");
    return static_cast<int64_t>(status.st_size);
  }

  Result<void> truncate(const std::string& path, int64_t bytes) override {
    if (::truncate(path.c_str(), bytes) != 0) return file_error(path, "truncate");
    return {};
  }

  Result<void> remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return file_error(path, "remove");
    return {};
  }

  Result<void> sync_folder(const std::string& folder) override {
    const FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!file.is_open() || ::fsync(file.get()) != 0) return file_error(folder, "sync");
    return {};
  }

  std::string road() const override {
    return std::string(uring_ ? "io_uring" : "pread and pwrite") +
           (direct_ ? ", O_DIRECT" : ", page cache");
  }

 private:
  const bool direct_;
  const bool uring_;
};

bool moved_too_little(const IoRequest& request, int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return true;
  return request.kind != IoKind::kSync && result >= 0 &&
         result < static_cast<int64_t>(request.bytes.size());
}

std::string complaint(const IoRequest& request, int64_t result, const std::string& what) {
  constexpr std::array<const char*, 3> kActions = {"read", "write", "sync"};
  const std::string action = kActions.at(static_cast<size_t>(request.kind));
  if (result < 0) {
    return what + ": cannot " + action + ": " + std::strerror(static_cast<int>(-result));
  }
  return what + ": cannot " + action + ": wanted " + std::to_string(request.bytes.size()) +
         " bytes at " + std::to_string(request.offset) + ", moved " + std::to_string(result);
}

}  // namespace

PageMemory::PageMemory(int64_t bytes) {
  FATHOM_CHECK(bytes > 0 && bytes % kPageBytes == 0);
  const auto size = static_cast<size_t>(bytes);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FATHOM_CHECK(data != MAP_FAILED);
  // A disk takes few pieces of memory at once, and huge pages are few. Only advice.
  ::madvise(data, size, MADV_HUGEPAGE);
  data_ = {static_cast<std::byte*>(data), Unmap{size}};
}

void PageMemory::Unmap::operator()(std::byte* data) const { ::munmap(data, size); }

std::unique_ptr<Disk> system_disk(const std::string& folder, DiskRoad road) {
  const bool uring = road == DiskRoad::kBest && UringQueue::make(1) != nullptr;
  return std::make_unique<SystemDisk>(has_direct(folder), uring);
}

Result<void> run_all(IoQueue& queue, int depth, std::span<IoRequest> requests,
                     const std::string& what) {
  std::vector<int> tries(requests.size(), 0);
  size_t next = 0;
  int under_way = 0;
  Result<void> first;
  while (next < requests.size() || under_way > 0) {
    if (next < requests.size() && under_way < depth) {
      requests[next].tag = next;
      queue.submit(requests[next++]);
      ++under_way;
      continue;
    }
    const IoCompletion done = queue.wait();
    const IoRequest& request = requests[static_cast<size_t>(done.tag)];
    const bool too_little = moved_too_little(request, done.result);
    if (too_little && ++tries[static_cast<size_t>(done.tag)] < kTries) {
      queue.submit(request);
      continue;
    }
    --under_way;
    if (!first || (!too_little && done.result >= 0)) continue;
    const std::string message = complaint(request, done.result, what);
    first =
        done.result == -ENOSPC || done.result == -EDQUOT ? exhausted(message) : io_error(message);
  }
  return first;
}

}  // namespace fathom
