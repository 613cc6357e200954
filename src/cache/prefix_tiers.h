#pragma once

// PrefixTiers: the tiers behind the blocks of the pool, the fastest first. What is published is put
// into all of them; what the pool has no longer is restored from the first one that has it.
//
// A restore reads a run of blocks, many at once and in any order, into memory of this class, from
// where each is handed on once. Of use is what came without a gap from the first block: where a
// block is missing or bad in every tier, the restore ends before it. Reads take turns, so that a
// long restore does not hold up a short one. Thread rule: owned by the engine thread.

#include <functional>
#include <map>

#include "cache/tier.h"

namespace fathom {

enum class RestoreId : uint64_t {};

struct RestoredBlock {
  RestoreId restore = {};
  int64_t index = 0;  // of its key among those of the restore
  size_t tier = 0;    // that it came from
  std::span<const std::byte> bytes;
};

struct RestoreProgress {
  int64_t n_ready = 0;  // handed on without a gap from the first
  bool done = false;    // no more will come that are of use
};

// Blocks, of all restores.
struct RestoreCounters {
  int64_t restored = 0;  // handed on
  int64_t lost = 0;      // that a tier had promised and none could bring: each ended its restore
};

class PrefixTiers {
 public:
  // The tiers outlive it. At most max_reads are under way at once.
  PrefixTiers(std::vector<Tier*> tiers, int64_t block_bytes, int64_t max_reads);
  // Waits for the reads that are under way.
  ~PrefixTiers();
  PrefixTiers(const PrefixTiers&) = delete;
  PrefixTiers& operator=(const PrefixTiers&) = delete;

  bool empty() const { return tiers_.empty(); }
  size_t n_tiers() const { return tiers_.size(); }

  // Into the first n_tiers.
  void put(const TierBlock& block, std::span<const std::byte> payload, size_t n_tiers);

  // How many of the first keys are there, in a row, in any tier.
  int64_t count(std::span<const BlockKey> keys) const;

  // Restores the first keys, those that count() finds.
  RestoreId begin(std::span<const BlockKey> keys);
  RestoreProgress progress(RestoreId id) const;
  // Nothing of it is handed on any more. Every restore is ended once.
  void end(RestoreId id);

  // Hands on what has come, waits up to timeout_us for the first where nothing has, and begins
  // further reads. `take` calls nothing of this object but put().
  using Take = std::function<void(const RestoredBlock& block)>;
  void poll(int64_t timeout_us, const Take& take);

  int64_t n_restores() const { return static_cast<int64_t>(restores_.size()); }
  int64_t n_reads() const { return static_cast<int64_t>(reads_.size()); }
  const RestoreCounters& counters() const { return counters_; }
  std::vector<TierCounters> tier_counters() const;

 private:
  struct Restore {
    std::vector<BlockKey> keys;
    std::vector<size_t> tiers;  // where each key is read from
    std::vector<bool> arrived;
    int64_t next = 0;  // to be read
    int64_t end = 0;   // none behind is of use
    int64_t n_ready = 0;
    std::vector<int64_t> again;  // to be read from another tier
  };
  struct Read {
    RestoreId restore = {};
    int64_t index = 0;
    size_t tier = 0;
    std::vector<std::byte> bytes;
  };
  using Reads = std::map<std::pair<size_t, TierTicket>, Read>;

  std::vector<size_t> places(std::span<const BlockKey> keys) const;
  bool begin_read(RestoreId id, Restore& restore);
  void begin_reads();
  void settle(Read& read, TierStatus status, const Take& take);
  bool collect(int64_t timeout_us, const Take& take);

  const std::vector<Tier*> tiers_;
  const int64_t block_bytes_;
  const int64_t max_reads_;
  std::map<RestoreId, Restore> restores_;
  Reads reads_;
  std::vector<std::vector<std::byte>> spare_;  // memory of reads that ended
  uint64_t last_id_ = 0;
  RestoreId turn_ = {};  // who reads next
  RestoreCounters counters_;
};

}  // namespace fathom
