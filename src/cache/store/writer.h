#pragma once

// The thread that writes: groups of puts to the active segment, rows to the index, and whatever the
// bounds ask for. It alone creates, appends to and removes segments, and uses the index.

#include <memory>
#include <vector>

#include "cache/store/index.h"
#include "cache/store/recover.h"
#include "cache/store/state.h"

namespace fathom {

class SegmentWriter {
 public:
  SegmentWriter(StoreState& state, Recovered recovered);

  // Until the state says to stop and nothing is left to write.
  void run();

 private:
  static constexpr int64_t kCopiesAtOnce = 16;

  struct Item {
    RecordHead head;
    uint32_t n_uses = 0;
    std::span<std::byte> record;  // payload in place
    bool complete = false;        // read from elsewhere: all of it stays but the place
  };
  struct Group {
    std::vector<StoreState::Slot> slots;
    int64_t first = 0;  // number of the first slot
    std::vector<RecordPlace> dead_rows;
    bool at_end = false;
    bool at_flush = false;
  };

  Group take();
  void write(const Group& group);
  // What is used outlives the process: once a minute, at a flush and at the end.
  void write_uses(const Group& group);
  std::vector<Item> fresh_items(const Group& group);
  void publish(std::span<const Item> items, const Group& group);
  void settle(const Group& group, int64_t n_kept, int64_t n_failed);

  // Makes items durable in their places. How many of the first ones are, and why not all.
  struct Appended {
    size_t n = 0;
    Result<void> failure;
  };
  Appended append(std::span<Item> items);
  Result<void> append_here(std::span<Item> items);
  Result<void> open_segment();
  void close_segment();
  // Whether it is durable; without a commit nothing is written any more.
  bool commit(StoreIndex::Change change);

  // evict.cc. Whether so many more bytes may be written.
  bool keep_bounds(int64_t bytes);
  bool shrink();
  void expire();
  void evict(uint32_t segment);
  std::vector<IndexRow> worth_copying(const std::vector<IndexRow>& rows);
  void copy(std::span<const IndexRow> rows);
  bool move(std::span<Item> items, std::span<const RecordPlace> from);
  void remove(uint32_t segment, const std::vector<IndexRow>& rows, bool for_age);
  void refuse_for_now(const Error& error);
  void break_down(const Error& error);
  bool is_broken();

  StoreState& state_;
  StoreIndex index_;
  std::unique_ptr<IoQueue> queue_;
  PageMemory copies_;
  uint32_t next_segment_ = 1;
  uint32_t active_ = 0;  // 0: none
  FileDescriptor file_;
  int64_t end_ = 0;                // of what is durable or being written in the active segment
  int64_t opened_us_ = 0;          // when the active segment was begun, or gone on with
  std::vector<uint32_t> removed_;  // segments whose rows are still in the index
  int64_t copy_budget_ = 0;
  int64_t paused_until_us_ = 0;
  int64_t uses_us_ = 0;  // when uses were written last
};

}  // namespace fathom
