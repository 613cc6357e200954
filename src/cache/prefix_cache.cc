#include "cache/prefix_cache.h"

#include <algorithm>

namespace fathom {

PrefixCache::PrefixCache(KvPool& pool, DeviceMemory& memory, const BlockCost& cost,
                         const WorthRule& rule)
    : pool_(pool), memory_(memory), cost_(cost), rule_(rule) {}

PrefixCache::Hit PrefixCache::peek(std::span<const BlockKey> keys) const {
  Hit hit;
  for (const BlockKey& key : keys) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) break;
    ++hit.n_blocks;
    if (node(found->second).n_pins == 0) ++hit.n_idle;
  }
  return hit;
}

BlockLease PrefixCache::match(std::span<const BlockKey> keys) {
  BlockLease lease;
  for (const BlockKey& key : keys) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) break;
    const NodeId id = found->second;
    FATHOM_CHECK(node(id).depth == lease.n_blocks());
    FATHOM_CHECK(lease.shared.empty() || node(id).parent == lease.shared.back());
    pin(id);
    ++node(id).n_uses;
    lease.shared.push_back(id);
    lease.blocks.push_back(node(id).block);
  }
  ++counters_.lookups;
  counters_.wanted_blocks += static_cast<int64_t>(keys.size());
  counters_.hit_blocks += lease.n_blocks();
  return lease;
}

Result<void> PrefixCache::grow(BlockLease& lease, int64_t n_blocks) {
  const int64_t n_more = n_blocks - lease.n_blocks();
  if (n_more > available()) {
    return exhausted("KV blocks: wanted " + std::to_string(n_more) + " more, found " +
                     std::to_string(available()) + " that are free or can be evicted");
  }
  for (int64_t i = 0; i < n_more; ++i) {
    Result<BlockId> id = allocate();
    FATHOM_CHECK(id.has_value());
    lease.blocks.push_back(*id);
  }
  return {};
}

int64_t PrefixCache::publish(BlockLease& lease, std::span<const BlockKey> keys) {
  FATHOM_CHECK(keys.size() <= lease.blocks.size());
  int64_t n_added = 0;
  while (lease.shared.size() < keys.size()) {
    const size_t at = lease.shared.size();
    const auto found = by_key_.find(keys[at]);
    if (found == by_key_.end()) {
      lease.shared.push_back(add(keys[at], lease.blocks[at], lease));
      ++counters_.published;
      ++n_added;
      continue;
    }
    const NodeId id = found->second;
    FATHOM_CHECK(node(id).depth == static_cast<int64_t>(at));
    FATHOM_CHECK(at == 0 || node(id).parent == lease.shared.back());
    pin(id);
    pool_.release(lease.blocks[at]);
    lease.blocks[at] = node(id).block;
    lease.shared.push_back(id);
    ++counters_.merged;
    ++epoch_;
  }
  return n_added;
}

void PrefixCache::cut(BlockLease& lease, int64_t n_blocks) {
  FATHOM_CHECK(lease.n_shared() <= n_blocks && n_blocks <= lease.n_blocks());
  for (int64_t i = n_blocks; i < lease.n_blocks(); ++i) {
    pool_.release(lease.blocks[static_cast<size_t>(i)]);
  }
  lease.blocks.resize(static_cast<size_t>(n_blocks));
}

Result<BlockLease> PrefixCache::fork(const BlockLease& lease, int64_t n_tokens) {
  const auto n_full = static_cast<size_t>(n_tokens / kBlockTokens);
  FATHOM_CHECK(n_full <= lease.shared.size());
  BlockLease copy = {.owner = lease.owner};
  const bool partial = n_tokens % kBlockTokens != 0;
  if (partial) {
    FATHOM_CHECK(n_full < lease.blocks.size());
    FATHOM_ASSIGN_OR_RETURN(const BlockId id, allocate());
    const int64_t n = pool_.block_bytes();
    std::vector<std::byte> bytes(static_cast<size_t>(n));
    memory_.read(bytes.data(), pool_.base() + static_cast<int64_t>(lease.blocks[n_full]) * n, n);
    memory_.write(pool_.base() + static_cast<int64_t>(id) * n, bytes.data(), n);
    copy.blocks.push_back(id);
    ++counters_.copied;
  }
  for (size_t i = 0; i < n_full; ++i) pin(lease.shared[i]);
  copy.shared.assign(lease.shared.begin(), lease.shared.begin() + static_cast<ptrdiff_t>(n_full));
  copy.blocks.insert(copy.blocks.begin(), lease.blocks.begin(),
                     lease.blocks.begin() + static_cast<ptrdiff_t>(n_full));
  return copy;
}

void PrefixCache::release(BlockLease& lease) {
  for (size_t i = lease.shared.size(); i < lease.blocks.size(); ++i) {
    pool_.release(lease.blocks[i]);
  }
  // Children first: a leaf enters the order of eviction before its parent can.
  for (size_t i = lease.shared.size(); i-- > 0;) unpin(lease.shared[i]);
  lease = {};
}

int64_t PrefixCache::clear(std::optional<uint64_t> owner) {
  std::vector<NodeId> leaves;
  for (const auto& [priority, id] : leaves_) {
    if (!owner || node(id).owner == *owner) leaves.push_back(id);
  }
  int64_t n_dropped = 0;
  while (!leaves.empty()) {
    const NodeId id = leaves.back();
    const NodeId parent = node(id).parent;
    const bool root = node(id).depth == 0;
    leaves.pop_back();
    remove(id);
    ++n_dropped;
    if (root || node(parent).n_children > 0 || node(parent).n_pins > 0) continue;
    if (!owner || node(parent).owner == *owner) leaves.push_back(parent);
  }
  counters_.cleared += n_dropped;
  return n_dropped;
}

std::map<uint64_t, int64_t> PrefixCache::nodes_by_owner() const {
  std::map<uint64_t, int64_t> counts;
  for (const Node& n : nodes_) {
    if (n.live) ++counts[n.owner];
  }
  return counts;
}

Result<BlockId> PrefixCache::allocate() {
  if (pool_.n_free() == 0) evict();
  return pool_.allocate();
}

// Below the nodes that the lease shares.
NodeId PrefixCache::add(const BlockKey& key, BlockId block, const BlockLease& lease) {
  const std::vector<NodeId>& path = lease.shared;
  if (unused_.empty()) {
    unused_.push_back(static_cast<NodeId>(nodes_.size()));
    nodes_.emplace_back();
  }
  const NodeId id = unused_.back();
  unused_.pop_back();
  node(id) = {.key = key,
              .block = block,
              .depth = static_cast<int64_t>(path.size()),
              .n_pins = 1,
              .n_uses = 1,
              .owner = lease.owner,
              .live = true};
  if (!path.empty()) {
    node(id).parent = path.back();
    ++node(path.back()).n_children;
  }
  by_key_.emplace(key, id);
  ++epoch_;
  return id;
}

void PrefixCache::pin(NodeId id) {
  Node& n = node(id);
  if (n.n_pins++ > 0) return;
  leaves_.erase({n.priority, id});
  --n_idle_;
  ++epoch_;
}

void PrefixCache::unpin(NodeId id) {
  Node& n = node(id);
  FATHOM_CHECK(n.n_pins > 0);
  if (--n.n_pins > 0) return;
  touch(n);
  if (n.n_children == 0) leaves_.insert({n.priority, id});
  ++n_idle_;
  ++epoch_;
}

// All blocks have the same bytes.
void PrefixCache::touch(Node& n) {
  const double cost = cost_.first + cost_.slope * static_cast<double>(n.depth);
  const auto bytes = static_cast<double>(std::max<int64_t>(1, pool_.block_bytes()));
  n.priority = rule_.base(floor_) + rule_.gain(static_cast<double>(n.n_uses), cost / bytes);
}

bool PrefixCache::evict() {
  if (leaves_.empty()) return false;
  const auto [priority, id] = *leaves_.begin();
  floor_ = std::max(floor_, priority);
  remove(id);
  ++counters_.evicted;
  return true;
}

void PrefixCache::remove(NodeId id) {
  Node& n = node(id);
  leaves_.erase({n.priority, id});
  FATHOM_CHECK(n.n_pins == 0 && n.n_children == 0);
  if (n.depth > 0) {
    Node& parent = node(n.parent);
    if (--parent.n_children == 0 && parent.n_pins == 0) {
      leaves_.insert({parent.priority, n.parent});
    }
  }
  by_key_.erase(n.key);
  pool_.release(n.block);
  n.live = false;
  unused_.push_back(id);
  --n_idle_;
  ++epoch_;
}

void PrefixCache::check(std::span<const BlockLease* const> leases) const {
  std::set<BlockId> held;
  std::vector<int64_t> pins(nodes_.size());
  for (const BlockLease* lease : leases) {
    FATHOM_CHECK(lease->shared.size() <= lease->blocks.size());
    for (size_t i = 0; i < lease->blocks.size(); ++i) {
      if (i >= lease->shared.size()) {
        FATHOM_CHECK(held.insert(lease->blocks[i]).second);
        continue;
      }
      FATHOM_CHECK(node(lease->shared[i]).block == lease->blocks[i]);
      ++pins[static_cast<size_t>(lease->shared[i])];
    }
  }
  std::vector<int64_t> children(nodes_.size());
  int64_t n_live = 0;
  int64_t n_idle = 0;
  int64_t n_leaves = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& n = nodes_[i];
    if (!n.live) continue;
    ++n_live;
    FATHOM_CHECK(held.insert(n.block).second);
    FATHOM_CHECK(by_key_.at(n.key) == static_cast<NodeId>(i));
    FATHOM_CHECK(n.n_pins == pins[i]);
    if (n.n_pins == 0) ++n_idle;
    const bool leaf = n.n_pins == 0 && n.n_children == 0;
    n_leaves += leaf ? 1 : 0;
    FATHOM_CHECK(leaf == (leaves_.count({n.priority, static_cast<NodeId>(i)}) != 0));
    if (n.depth == 0) continue;
    FATHOM_CHECK(node(n.parent).live && node(n.parent).depth + 1 == n.depth);
    FATHOM_CHECK(n.n_pins == 0 || node(n.parent).n_pins > 0);
    ++children[static_cast<size_t>(n.parent)];
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    FATHOM_CHECK(!nodes_[i].live || nodes_[i].n_children == children[i]);
  }
  FATHOM_CHECK(n_live == n_nodes() && n_idle == n_idle_);
  FATHOM_CHECK(n_leaves == static_cast<int64_t>(leaves_.size()));
  FATHOM_CHECK(pool_.n_free() + static_cast<int64_t>(held.size()) == pool_.n_blocks());
}

}  // namespace fathom
