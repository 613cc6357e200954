#pragma once

// HostTier: a tier in plain memory of this process, bounded in bytes. What costs least to compute
// again a byte goes first (worth.h), and no block before those behind it that
// are here. A read is verified against the checksum of what was put.
//
// It keeps no ages: bytes_by_age stays zero. Thread rule: as Tier.

#include <functional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "cache/tier.h"
#include "cache/worth.h"

namespace fathom {

class HostTier final : public Tier {
 public:
  // Bytes with what the entries themselves take; at least one byte. `problem` is called with a line
  // for each block that is not what was put; may be null. The rule outlives the tier.
  explicit HostTier(int64_t max_bytes,
                    std::function<void(const std::string& line)> problem = nullptr,
                    const WorthRule& rule = kRecomputeWorth);

  bool put(const TierBlock& block, std::span<const std::byte> payload) override;
  int64_t count(std::span<const BlockKey> keys) const override;
  std::optional<TierTicket> get(const BlockKey& key, std::span<std::byte> payload) override;
  std::vector<TierCompletion> poll(int64_t timeout_us = 0) override;
  void forget(const BlockKey& key) override;
  void flush() override {}
  TierCounters counters() const override { return counters_; }

  // Memory of an entry beside its payload.
  static int64_t overhead_bytes();
  // The payload as it is kept, to damage it; empty where there is none. For tests.
  std::span<std::byte> payload_of(const BlockKey& key);
  // Stops the program where an invariant does not hold. For tests.
  void check() const;

 private:
  struct Entry {
    std::vector<std::byte> payload;
    uint64_t checksum = 0;
    BlockKey parent;
    double cost = 0;
    double priority = 0;
    int64_t n_uses = 0;
  };
  using Entries = std::unordered_map<BlockKey, Entry, BlockKeyHash>;

  bool is_leaf(const BlockKey& key) const { return n_children_.count(key) == 0; }
  void use(const BlockKey& key, Entry& entry);
  void erase(Entries::iterator entry);
  void make_room();

  const WorthRule& rule_;
  const std::function<void(const std::string& line)> problem_;
  Entries entries_;
  std::unordered_map<BlockKey, int64_t, BlockKeyHash> n_children_;  // by parent, here or not
  std::set<std::pair<double, BlockKey>> leaves_;                    // the first to go first
  double floor_ = 0;                                                // priority of the last one
  std::vector<TierCompletion> ended_;
  uint64_t last_ticket_ = 0;
  TierCounters counters_;
};

}  // namespace fathom
