#pragma once

// What the threads of a shared store do. Private to it.

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <vector>

#include "cache/store/shared_catalog.h"
#include "cache/store/shared_store.h"

namespace fathom {

class SharedWork {
 public:
  SharedWork(const SharedOptions& options, SharedFolder folder)
      : options(options), folder(std::move(folder)) {}

  // A worker, until stopping and nothing waits to be put.
  void work();
  // The one that looks at the folder and removes what is old or in the way.
  void keep();
  // One look at every shard that has changed.
  void look();
  void note_use(const BlockKey& key);  // with the mutex held

  int64_t now_us() const;
  // A block created before is not to be found.
  int64_t oldest_us() const { return now_us() - options.max_age_us; }
  // Below it nothing has to go.
  int64_t room_bytes() const { return options.max_bytes - options.max_bytes / 16; }

  const SharedOptions options;
  const SharedFolder folder;

  struct Put {
    TierBlock block;
    int64_t payload_bytes = 0;
    std::vector<std::byte> record;
  };
  struct Get {
    TierTicket ticket = {};
    BlockKey key;
    std::span<std::byte> into;
  };

  mutable std::mutex mutex;  // of all that follows
  std::condition_variable to_workers;
  std::condition_variable to_keeper;
  std::condition_variable to_engine;  // a read or the last put ended, or a look did
  SharedCatalog catalog;
  std::deque<Put> puts;
  std::set<BlockKey> putting;  // waiting or under way
  int64_t put_bytes = 0;       // of records of these
  std::deque<Get> gets;
  int64_t n_gets = 0;  // asked for and not ended
  uint64_t last_ticket = 0;
  std::vector<TierCompletion> ended;
  std::deque<BlockKey> used;     // whose last use others are to see
  std::deque<BlockKey> dead;     // to be removed
  std::set<BlockKey> forgotten;  // not found again though a look may still see them
  int64_t written_bytes = 0;     // since the last look began
  int64_t n_looks = 0;           // that began
  int64_t n_looked = 0;          // that ended
  bool asks_look = false;
  bool stopping = false;
  int64_t paused_until_us = 0;
  std::string failure;
  TierCounters counters;

 private:
  void read(const Get& get);
  TierStatus read_into(const Get& get);
  void write(Put& put);
  bool has_room(int64_t bytes);
  void make_room(int64_t bytes);
  void sweep();
  void tell_others();

  std::array<int64_t, kShards> changed_us_ =
      {};  // of each shard, as of the last look; the keeper's
  std::array<int64_t, kShards> looked_us_ = {};
  std::array<std::array<int64_t, 5>, kShards> bytes_by_age_ = {};
};

}  // namespace fathom
