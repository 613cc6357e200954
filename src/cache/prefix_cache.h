#pragma once

// PrefixCache: blocks of prefix-lifetime state in the pool, kept by the key of what they hold, so
// that a sequence starts where another one's computation ended.
//
// A block is free, the own one of one lease, or the cache's. Cached blocks form a tree along their
// keys. A lease is what one sequence holds: first blocks of the cache, pinned, from the root
// without a gap, then its own. Invariants (check()):
//   every block of the pool is free, in exactly one lease as its own, or in exactly one node;
//   the parent of a node is a node; the parent of a pinned node is pinned;
//   therefore free blocks and nodes without a pin together are what can still be had.
// Cached blocks are never written. Thread rule: owned by the engine thread.

#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "cache/block_key.h"
#include "cache/kv_pool.h"
#include "cache/worth.h"

namespace fathom {

enum class NodeId : uint32_t {};

struct BlockLease {
  std::vector<BlockId> blocks;  // all, in the order of positions
  std::vector<NodeId> shared;   // nodes of the first blocks; those after are the lease's own
  uint64_t owner = 0;           // what it publishes is counted and cleared under this number

  int64_t n_blocks() const { return static_cast<int64_t>(blocks.size()); }
  int64_t n_shared() const { return static_cast<int64_t>(shared.size()); }
};

// Work to rebuild block `depth` of a sequence: first + depth * slope, in any unit. The encoder's
// rows cost the same everywhere, its index scores grow with the position.
struct BlockCost {
  double first = 1.0;
  double slope = 0.0;
};

struct PrefixCounters {
  int64_t lookups = 0;
  int64_t wanted_blocks = 0;
  int64_t hit_blocks = 0;
  int64_t published = 0;
  int64_t merged = 0;  // found under its key when it was to be published
  int64_t evicted = 0;
  int64_t cleared = 0;
  int64_t copied = 0;  // partial blocks, at forks
};

class PrefixCache {
 public:
  // `memory` is that of the pool; both and the rule outlive the cache.
  PrefixCache(KvPool& pool, DeviceMemory& memory, const BlockCost& cost,
              const WorthRule& rule = kRecomputeWorth);

  // How many of the first keys are cached, and how many of those nobody has pinned.
  struct Hit {
    int64_t n_blocks = 0;
    int64_t n_idle = 0;
  };
  Hit peek(std::span<const BlockKey> keys) const;
  bool contains(const BlockKey& key) const { return by_key_.count(key) != 0; }

  // Pins the longest cached run of the first keys. Counted as a use of each.
  BlockLease match(std::span<const BlockKey> keys);

  // Adds own blocks until the lease has n_blocks, evicting where none is free. kExhausted where
  // pins do not leave enough; the lease is then as it was.
  Result<void> grow(BlockLease& lease, int64_t n_blocks);

  // Gives the cache the own blocks at [n_shared, keys.size()), which are full and will not be
  // written again; they stay pinned by the lease. Where a key is cached already, the lease takes
  // that block, which holds the same bytes, and gives its own back: `blocks` may change.
  // `keys` are of all first blocks, those that the lease shares included.
  // How many it did not have: the last ones of `keys`.
  int64_t publish(BlockLease& lease, std::span<const BlockKey> keys);

  // Gives the own blocks behind the first n_blocks back.
  void cut(BlockLease& lease, int64_t n_blocks);

  // A lease of the same first n_tokens: full blocks, which must be shared, are pinned once more, a
  // partial one is copied, because both sides will write it. kExhausted where no block can be had.
  Result<BlockLease> fork(const BlockLease& lease, int64_t n_tokens);

  // Unpins and frees. The lease is empty afterwards.
  void release(BlockLease& lease);

  // Drops every node without a pin, or those of one owner with no other's below; how many.
  int64_t clear(std::optional<uint64_t> owner = std::nullopt);

  int64_t available() const { return pool_.n_free() + n_idle_; }
  int64_t n_nodes() const { return static_cast<int64_t>(by_key_.size()); }
  int64_t n_idle() const { return n_idle_; }
  std::map<uint64_t, int64_t> nodes_by_owner() const;
  const PrefixCounters& counters() const { return counters_; }
  // Changes whenever peek() might.
  int64_t epoch() const { return epoch_; }

  // Stops the program where an invariant does not hold, given all leases. For tests.
  void check(std::span<const BlockLease* const> leases) const;

 private:
  struct Node {
    BlockKey key;
    BlockId block = {};
    int64_t depth = 0;
    NodeId parent = {};  // unused at depth 0
    int64_t n_children = 0;
    int64_t n_pins = 0;
    int64_t n_uses = 0;
    uint64_t owner = 0;
    double priority = 0;
    bool live = false;
  };

  Node& node(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  Result<BlockId> allocate();
  NodeId add(const BlockKey& key, BlockId block, const BlockLease& lease);
  void pin(NodeId id);
  void unpin(NodeId id);
  void touch(Node& node);
  bool evict();
  void remove(NodeId leaf);

  KvPool& pool_;
  DeviceMemory& memory_;
  BlockCost cost_;
  const WorthRule& rule_;
  std::vector<Node> nodes_;
  std::vector<NodeId> unused_;
  std::unordered_map<BlockKey, NodeId, BlockKeyHash> by_key_;
  std::set<std::pair<double, NodeId>> leaves_;  // without a pin, the first to go first
  double floor_ = 0;                            // priority of the last one that went
  int64_t n_idle_ = 0;
  int64_t epoch_ = 0;
  PrefixCounters counters_;
};

}  // namespace fathom
