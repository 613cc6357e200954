#pragma once

// SharedStore: the tier in a folder that several processes have, on one machine or on a shared file
// system: each block a file of its own (shared_folder.h). What it promises and how stands in
// docs/design/tiers.md.
//
// No process waits for another or asks it. Bounds are of the folder, not of a process: each counts
// all that is there and removes what was used least lately. Thread rule: as a Tier; threads of its
// own do all work with files. Destruction writes what was put.

#include <functional>
#include <memory>
#include <string>

#include "cache/store/record.h"
#include "cache/tier.h"

namespace fathom {

struct SharedOptions {
  std::string folder;
  StoreIdentity identity;
  // Of all files. A sixteenth below it room is made, and a process looks at the folder again before
  // it has written another 64th: four writers at once never exceed it.
  int64_t max_bytes = int64_t{256} << 30;
  int64_t max_age_us = int64_t{72} * 3600 * 1'000'000;  // older blocks are removed
  int64_t queue_bytes = int64_t{64} << 20;              // of puts that wait
  int64_t max_reads = 4096;                             // asked for and not ended
  int64_t n_workers = 8;             // that read and write files; each waits for one at a time
  int64_t look_us = 1'000'000;       // between two looks for what others have done
  int64_t pause_us = 5'000'000;      // puts are dropped after the folder refused one
  std::function<int64_t()> unix_us;  // the time of day; empty: the system's
};

class SharedStore : public Tier {
 public:
  // As SharedFolder::open(), and kInvalid for options that are none. Has looked at the folder once.
  static Result<std::unique_ptr<SharedStore>> open(const SharedOptions& options);
  ~SharedStore() override;

  bool put(const TierBlock& block, std::span<const std::byte> payload) override;
  int64_t count(std::span<const BlockKey> keys) const override;
  std::optional<TierTicket> get(const BlockKey& key, std::span<std::byte> payload) override;
  std::vector<TierCompletion> poll(int64_t timeout_us = 0) override;
  void forget(const BlockKey& key) override;
  void flush() override;
  TierCounters counters() const override;

  // Waits for another look at the folder. For tests.
  void look();
  // The last failure, one line; empty: none yet.
  std::string failure() const;

 private:
  struct Parts;
  explicit SharedStore(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace fathom
