#include "cache/prefix_tiers.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace fathom {

PrefixTiers::PrefixTiers(std::vector<Tier*> tiers, int64_t block_bytes, int64_t max_reads)
    : tiers_(std::move(tiers)), block_bytes_(block_bytes), max_reads_(max_reads) {
  FATHOM_CHECK(max_reads > 0);
}

PrefixTiers::~PrefixTiers() {
  restores_.clear();
  while (!reads_.empty()) collect(1'000'000, {});
}

void PrefixTiers::put(const TierBlock& block, std::span<const std::byte> payload, size_t n_tiers) {
  FATHOM_CHECK(static_cast<int64_t>(payload.size()) == block_bytes_);
  for (size_t i = 0; i < n_tiers; ++i) tiers_[i]->put(block, payload);
}

// In runs: the tier that has most of the next keys gives them all.
std::vector<size_t> PrefixTiers::places(std::span<const BlockKey> keys) const {
  std::vector<size_t> found;
  while (found.size() < keys.size()) {
    int64_t longest = 0;
    size_t best = 0;
    for (size_t i = 0; i < tiers_.size(); ++i) {
      const int64_t n = tiers_[i]->count(keys.subspan(found.size()));
      if (n <= longest) continue;
      longest = n;
      best = i;
      if (i == 0) break;  // nothing is faster
    }
    if (longest == 0) break;
    found.insert(found.end(), static_cast<size_t>(longest), best);
  }
  return found;
}

int64_t PrefixTiers::count(std::span<const BlockKey> keys) const {
  return static_cast<int64_t>(places(keys).size());
}

RestoreId PrefixTiers::begin(std::span<const BlockKey> keys) {
  Restore restore = {.tiers = places(keys)};
  const size_t n = restore.tiers.size();
  restore.keys.assign(keys.begin(), keys.begin() + static_cast<ptrdiff_t>(n));
  restore.arrived.resize(n);
  restore.end = static_cast<int64_t>(n);
  const auto id = static_cast<RestoreId>(++last_id_);
  restores_.emplace(id, std::move(restore));
  begin_reads();
  return id;
}

RestoreProgress PrefixTiers::progress(RestoreId id) const {
  const Restore& restore = restores_.at(id);
  return {.n_ready = restore.n_ready, .done = restore.n_ready == restore.end};
}

void PrefixTiers::end(RestoreId id) { FATHOM_CHECK(restores_.erase(id) == 1); }

// Whether a read began: false where the restore needs none now, or its tier takes none.
bool PrefixTiers::begin_read(RestoreId id, Restore& restore) {
  std::erase_if(restore.again, [&](int64_t index) { return index >= restore.end; });
  const bool again = !restore.again.empty();
  const int64_t index = again ? restore.again.back() : restore.next;
  if (index >= restore.end) return false;
  const size_t tier = restore.tiers[static_cast<size_t>(index)];
  Read read = {.restore = id, .index = index, .tier = tier};
  if (!spare_.empty()) {
    read.bytes = std::move(spare_.back());
    spare_.pop_back();
  }
  read.bytes.resize(static_cast<size_t>(block_bytes_));
  const auto ticket = tiers_[tier]->get(restore.keys[static_cast<size_t>(index)], read.bytes);
  if (!ticket) {
    spare_.push_back(std::move(read.bytes));
    return false;
  }
  if (again) {
    restore.again.pop_back();
  } else {
    ++restore.next;
  }
  FATHOM_CHECK(reads_.emplace(std::pair(tier, *ticket), std::move(read)).second);
  return true;
}

void PrefixTiers::begin_reads() {
  size_t n_idle = 0;
  while (n_reads() < max_reads_ && n_idle < restores_.size()) {
    auto next = restores_.lower_bound(turn_);
    if (next == restores_.end()) next = restores_.begin();
    turn_ = static_cast<RestoreId>(static_cast<uint64_t>(next->first) + 1);
    n_idle = begin_read(next->first, next->second) ? 0 : n_idle + 1;
  }
}

void PrefixTiers::settle(Read& read, TierStatus status, const Take& take) {
  const auto found = restores_.find(read.restore);
  if (found == restores_.end() || read.index >= found->second.end) return;
  Restore& restore = found->second;
  const auto at = static_cast<size_t>(read.index);
  if (status == TierStatus::kOk) {
    restore.arrived[at] = true;
    ++counters_.restored;
    take({.restore = read.restore, .index = read.index, .tier = read.tier, .bytes = read.bytes});
    while (restore.n_ready < restore.end && restore.arrived[static_cast<size_t>(restore.n_ready)]) {
      ++restore.n_ready;
    }
    return;
  }
  for (size_t tier = read.tier + 1; tier < tiers_.size(); ++tier) {
    if (tiers_[tier]->count({&restore.keys[at], 1}) == 0) continue;
    restore.tiers[at] = tier;
    restore.again.push_back(read.index);
    return;
  }
  ++counters_.lost;
  restore.end = read.index;
}

// Whether anything came. Waits for one tier at most.
bool PrefixTiers::collect(int64_t timeout_us, const Take& take) {
  bool any = false;
  for (size_t i = 0; i < tiers_.size(); ++i) {
    const auto of_tier = reads_.lower_bound({i, TierTicket{}});
    if (of_tier == reads_.end() || of_tier->first.first != i) continue;
    for (const TierCompletion& ended : tiers_[i]->poll(std::exchange(timeout_us, 0))) {
      const auto found = reads_.find({i, ended.ticket});
      FATHOM_CHECK(found != reads_.end());
      settle(found->second, ended.status, take);
      spare_.push_back(std::move(found->second.bytes));
      reads_.erase(found);
      any = true;
    }
  }
  return any;
}

void PrefixTiers::poll(int64_t timeout_us, const Take& take) {
  begin_reads();
  collect(timeout_us, take);
  begin_reads();
  if (restores_.empty()) spare_.clear();
}

std::vector<TierCounters> PrefixTiers::tier_counters() const {
  std::vector<TierCounters> counters;
  for (const Tier* tier : tiers_) counters.push_back(tier->counters());
  return counters;
}

}  // namespace fathom
