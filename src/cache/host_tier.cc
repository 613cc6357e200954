#include "cache/host_tier.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace fathom {
namespace {

uint64_t checksum_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace

HostTier::HostTier(int64_t max_bytes, std::function<void(const std::string& line)> problem,
                   const WorthRule& rule)
    : rule_(rule), problem_(std::move(problem)) {
  FATHOM_CHECK(max_bytes > 0);
  counters_.max_bytes = max_bytes;
}

int64_t HostTier::overhead_bytes() {
  // Of each container a node: its value and about three words; and a child's count.
  return static_cast<int64_t>(sizeof(Entries::value_type) + 2 * sizeof(BlockKey) + 12 * 8);
}

bool HostTier::put(const TierBlock& block, std::span<const std::byte> payload) {
  ++counters_.puts;
  const auto known = entries_.find(block.key);
  if (known != entries_.end()) {
    ++counters_.found_again;
    use(block.key, known->second);
    return true;
  }
  const auto n = static_cast<int64_t>(payload.size());
  if (n + overhead_bytes() > counters_.max_bytes) {
    ++counters_.dropped_full;
    return false;
  }
  Entry& entry = entries_[block.key];
  entry.payload.assign(payload.begin(), payload.end());
  entry.checksum = checksum_of(entry.payload);
  entry.parent = block.parent;
  entry.cost = block.cost;
  if (++n_children_[block.parent] == 1) {
    const auto parent = entries_.find(block.parent);
    if (parent != entries_.end()) leaves_.erase({parent->second.priority, block.parent});
  }
  use(block.key, entry);
  ++counters_.kept;
  ++counters_.n_blocks;
  counters_.put_payload_bytes += n;
  counters_.payload_bytes += n;
  counters_.held_bytes += n + overhead_bytes();
  make_room();
  return entries_.count(block.key) != 0;
}

int64_t HostTier::count(std::span<const BlockKey> keys) const {
  int64_t n = 0;
  for (const BlockKey& key : keys) {
    if (entries_.count(key) == 0) break;
    ++n;
  }
  return n;
}

std::optional<TierTicket> HostTier::get(const BlockKey& key, std::span<std::byte> payload) {
  const auto ticket = static_cast<TierTicket>(++last_ticket_);
  ++counters_.gets;
  const auto found = entries_.find(key);
  TierStatus status = TierStatus::kMissing;
  if (found == entries_.end()) {
    ++counters_.misses;
  } else if (found->second.payload.size() != payload.size() ||
             checksum_of(found->second.payload) != found->second.checksum) {
    status = TierStatus::kBad;
    ++counters_.bad;
    erase(found);
    if (problem_) problem_("host memory: wanted the block that was put there, found other bytes");
  } else {
    status = TierStatus::kOk;
    ++counters_.hits;
    std::memcpy(payload.data(), found->second.payload.data(), payload.size());
    use(key, found->second);
  }
  ended_.push_back({ticket, status});
  return ticket;
}

std::vector<TierCompletion> HostTier::poll(int64_t) { return std::exchange(ended_, {}); }

void HostTier::forget(const BlockKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  ++counters_.forgotten;
  erase(found);
}

void HostTier::use(const BlockKey& key, Entry& entry) {
  if (entry.n_uses > 0) leaves_.erase({entry.priority, key});
  ++entry.n_uses;
  const auto bytes = static_cast<double>(std::max<size_t>(1, entry.payload.size()));
  entry.priority =
      rule_.base(floor_) + rule_.gain(static_cast<double>(entry.n_uses), entry.cost / bytes);
  if (is_leaf(key)) leaves_.insert({entry.priority, key});
}

void HostTier::erase(Entries::iterator entry) {
  const BlockKey parent = entry->second.parent;
  const auto n = static_cast<int64_t>(entry->second.payload.size());
  leaves_.erase({entry->second.priority, entry->first});
  entries_.erase(entry);
  --counters_.n_blocks;
  counters_.payload_bytes -= n;
  counters_.held_bytes -= n + overhead_bytes();
  if (--n_children_[parent] > 0) return;
  n_children_.erase(parent);
  const auto above = entries_.find(parent);
  if (above != entries_.end()) leaves_.insert({above->second.priority, parent});
}

// Parents are keys of earlier blocks, so that there is a leaf wherever there is an entry.
void HostTier::make_room() {
  while (counters_.held_bytes > counters_.max_bytes) {
    const auto [priority, key] = *leaves_.begin();
    floor_ = std::max(floor_, priority);
    erase(entries_.find(key));
    ++counters_.evicted_size;
  }
}

std::span<std::byte> HostTier::payload_of(const BlockKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return {};
  return found->second.payload;
}

void HostTier::check() const {
  int64_t payload_bytes = 0;
  int64_t n_leaves = 0;
  std::unordered_map<BlockKey, int64_t, BlockKeyHash> n_children;
  for (const auto& [key, entry] : entries_) {
    payload_bytes += static_cast<int64_t>(entry.payload.size());
    ++n_children[entry.parent];
    if (!is_leaf(key)) continue;
    ++n_leaves;
    FATHOM_CHECK(leaves_.count({entry.priority, key}) == 1);
  }
  const auto n = static_cast<int64_t>(entries_.size());
  FATHOM_CHECK(n_children == n_children_);
  FATHOM_CHECK(n_leaves == static_cast<int64_t>(leaves_.size()));
  FATHOM_CHECK(counters_.n_blocks == n && counters_.payload_bytes == payload_bytes);
  FATHOM_CHECK(counters_.held_bytes == payload_bytes + n * overhead_bytes());
  FATHOM_CHECK(counters_.held_bytes <= counters_.max_bytes);
}

}  // namespace fathom
