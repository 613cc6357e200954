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
    int64_t bytes = 0;   // of the record
    bool alone = false;  // not together with its neighbours, of which one may be what fails
  };
  // Records that are read at once, behind one another in a segment.
  struct Run {
    std::vector<Read> reads;
    int64_t bytes = 0;
    int n_tries = 0;
    uint32_t segment() const { return reads.front().place.segment; }
  };
  struct OpenSegment {
    FileDescriptor file;
    int n_reads = 0;
    uint64_t last_use = 0;
    bool removed = false;
  };

  bool take();  // false: the end
  void look_up(const std::deque<StoreState::Get>& gets);
  void close_removed(const std::vector<uint32_t>& segments);
  Run next_run();
  void start(size_t buffer);
  void submit(size_t buffer);
  void finish(const IoCompletion& completion);
  Result<void> open(uint32_t segment);
  void release(uint32_t segment);
  bool deliver(const Read& read, std::span<std::byte> record) const;
  void end(const std::vector<Read>& reads, const std::vector<bool>& delivered);
  TierStatus lose(const Read& read);

  StoreState& state_;
  std::unique_ptr<IoQueue> queue_;
  const int64_t buffer_bytes_;
  PageMemory memory_;
  std::vector<Run> runs_;  // one a buffer
  std::vector<size_t> free_;
  std::deque<Read> todo_;  // in the order of the disk
  std::map<uint32_t, OpenSegment> segments_;
  uint64_t n_uses_ = 0;
};

}  // namespace fathom
