#pragma once

// What the threads of a store share. Everything below the mutex is guarded by it.

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "cache/store/catalog.h"
#include "cache/store/disk_store.h"

namespace fathom {

struct StoreState {
  // `sealer`: null where the store is in clear.
  StoreState(const StoreOptions& options, Disk& disk, std::unique_ptr<const Sealer> sealer);

  const StoreOptions options;  // without the key, which is the sealer's
  Disk& disk;
  const std::unique_ptr<const Sealer> sealer;
  const int64_t slot_bytes;  // of the largest record
  const int64_t n_slots;
  // Slots hold records whose payload is in place. Those of [n_taken, n_put) wait for the writer,
  // who alone touches those of [n_free, n_taken).
  PageMemory ring;

  struct Get {
    TierTicket ticket = {};
    BlockKey key;
    std::span<std::byte> into;
  };
  struct Slot {
    TierBlock block;
    int64_t payload_bytes = 0;
    bool forgotten = false;
  };

  std::mutex mutex;
  std::condition_variable to_writer;
  std::condition_variable to_reader;
  std::condition_variable to_engine;  // a read ended, or the writer has nothing left

  std::vector<Slot> slots;
  int64_t n_put = 0;
  int64_t n_taken = 0;
  int64_t n_free = 0;  // written or dropped
  bool stopping = false;
  bool flushing = false;  // uses are to be written now
  Catalog catalog;
  std::vector<RecordPlace> dead_rows;      // for the writer to remove
  std::vector<uint32_t> removed_segments;  // for the reader to close
  std::deque<Get> gets;
  int64_t n_gets = 0;  // asked for and not ended
  uint64_t last_ticket = 0;
  std::vector<TierCompletion> ended;
  int64_t index_bytes = 0;
  int64_t max_bytes = 0;  // in force: the disk may have less room than the options say
  std::string broken;
  TierCounters counters;

  std::span<std::byte> slot(int64_t number) {
    return ring.at(number % n_slots * slot_bytes, slot_bytes);
  }
  std::string path_of(uint32_t segment) const {
    return options.folder + "/" + segment_name(segment);
  }
  int64_t now_us() const;
  // A record created before is not to be found.
  int64_t oldest_us() const { return now_us() - options.max_age_us; }
  // With the mutex held.
  void end_get(TierTicket ticket, TierStatus status);
  // Without it.
  void tell_bad(const RecordPlace& place) const;
  int64_t held_bytes() const { return catalog.file_bytes() + index_bytes; }
};

}  // namespace fathom
