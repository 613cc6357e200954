#pragma once

// WatchFile: instants of streams of letters in a file that another process maps too, so that it can
// tell when a letter that it received was drawn. Nanoseconds of CLOCK_MONOTONIC; 0: not yet.
// Thread rule: one writer a cell; readers look at a cell once they know that it was written.

#include <atomic>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace fathom {

int64_t monotonic_ns();

class WatchFile {
 public:
  // Room for n_streams streams of n_letters letters. Makes the file as large as that.
  static Result<WatchFile> open(const std::string& path, int64_t n_streams, int64_t n_letters);

  WatchFile(WatchFile&& other) noexcept;
  WatchFile& operator=(WatchFile&&) = delete;
  ~WatchFile();

  // False: the file has no room for it.
  bool has(int64_t stream, int64_t k) const {
    return 0 <= stream && stream < n_streams_ && 0 <= k && k < n_letters_;
  }
  std::atomic<int64_t>& started(int64_t stream) { return cells_[stream * (n_letters_ + 1)]; }
  std::atomic<int64_t>& drawn(int64_t stream, int64_t k) {
    return cells_[stream * (n_letters_ + 1) + 1 + k];
  }

 private:
  WatchFile(std::atomic<int64_t>* cells, int64_t n_streams, int64_t n_letters)
      : cells_(cells), n_streams_(n_streams), n_letters_(n_letters) {}

  std::atomic<int64_t>* cells_ = nullptr;
  int64_t n_streams_ = 0;
  int64_t n_letters_ = 0;
};

}  // namespace fathom
