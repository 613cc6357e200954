#pragma once

// Disk: everything that the store does with its segments' files, in one small layer, so that a test
// can put a failing disk in its place. Transfers bypass the page cache where the file system lets
// them (O_DIRECT): memory, offsets and lengths are multiples of kPageBytes.
//
// Thread rule: a Disk, any thread; an IoQueue, one thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/descriptor.h"
#include "base/result.h"

namespace fathom {

inline constexpr int64_t kPageBytes = 4096;

// Memory that a Disk can transfer: begins at a multiple of kPageBytes; zero at first, and taken
// from the system where it is touched.
class PageMemory {
 public:
  explicit PageMemory(int64_t bytes);

  std::span<std::byte> bytes() { return {data_.get(), data_.get_deleter().size}; }
  std::span<std::byte> at(int64_t begin, int64_t size) {
    return bytes().subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
  }

 private:
  struct Unmap {
    size_t size;
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Unmap> data_;
};

enum class IoKind : uint8_t { kRead, kWrite, kSync };

struct IoRequest {
  IoKind kind = IoKind::kRead;
  int fd = -1;
  int64_t offset = 0;
  std::span<std::byte> bytes;  // written to by reads alone; none for kSync
  uint64_t tag = 0;            // comes back with the completion
};

struct IoCompletion {
  uint64_t tag = 0;
  int64_t result = 0;  // bytes that were moved, which may be too few, or an errno, negative
};

class IoQueue {
 public:
  virtual ~IoQueue() = default;
  // At most as many under way as the queue is deep.
  virtual void submit(const IoRequest& request) = 0;
  // The next one that ends, in any order; one must be under way.
  virtual IoCompletion wait() = 0;
};

class Disk {
 public:
  virtual ~Disk() = default;
  virtual std::unique_ptr<IoQueue> queue(int depth) = 0;
  // To be read and written. `create`: it must not be there yet.
  virtual Result<FileDescriptor> open(const std::string& path, bool create) = 0;
  virtual Result<int64_t> size(const std::string& path) = 0;
  virtual Result<void> truncate(const std::string& path, int64_t bytes) = 0;
  virtual Result<void> remove(const std::string& path) = 0;
  // Makes created and removed names last.
  virtual Result<void> sync_folder(const std::string& folder) = 0;
  // How bytes travel, for a report: "io_uring, O_DIRECT".
  virtual std::string road() const = 0;
};

enum class DiskRoad {
  kBest,   // io_uring where the kernel lets us, else as kPlain
  kPlain,  // pread, pwrite and fdatasync, one at a time
};

// The system's disk, for files in `folder`, which is there. Finds out once what the kernel and the
// file system can do.
std::unique_ptr<Disk> system_disk(const std::string& folder, DiskRoad road);

// Runs all requests, at most `depth` of which are under way; short transfers and interrupted ones
// are done again, whole, a few times. The first failure, once all have ended; tags are overwritten.
// `what` names the file in the message.
Result<void> run_all(IoQueue& queue, int depth, std::span<IoRequest> requests,
                     const std::string& what);

}  // namespace fathom
