#pragma once

// The thread that reads: keeps many reads under way in the order of the disk, verifies what comes
// back, and copies it to where it was wanted.

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "cache/store/state.h"

namespace fathom {

class SegmentReader {
 public:
  explicit SegmentReader(StoreState& state);

  // Until the state says to stop.
  void run();

 private:
  struct Read {
    StoreState::Get get;
    RecordPlace place;
    int64_t bytes = 0;  // of the record
    int n_tries = 0;
  };
  struct OpenSegment {
    FileDescriptor file;
    int n_reads = 0;
    uint64_t last_use = 0;
    bool removed = false;
  };

  bool take();  // false: the end
  void look_up(std::deque<StoreState::Get> gets);
  void close_removed(const std::vector<uint32_t>& segments);
  void start(size_t buffer, const Read& read);
  void submit(size_t buffer);
  void finish(const IoCompletion& completion);
  OpenSegment* open(uint32_t segment);
  void release(uint32_t segment);
  void lose(const Read& read);
  void end(const Read& read, TierStatus status);
  std::span<std::byte> buffer_of(size_t buffer);

  StoreState& state_;
  std::unique_ptr<IoQueue> queue_;
  PageMemory memory_;
  std::vector<Read> reads_;  // one a buffer
  std::vector<size_t> free_;
  std::deque<Read> todo_;  // in the order of the disk
  std::map<uint32_t, OpenSegment> segments_;
  uint64_t n_uses_ = 0;
};

}  // namespace fathom
