#include "cache/session_cache.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/kv_spec.h"

namespace fathom {

SessionName session_name(const SessionPlace& place) {
  const auto n_partial = static_cast<int64_t>(place.partial_ids.size());
  FATHOM_CHECK(place.n_tokens % kBlockTokens == n_partial);
  return {place.parent, state_key(place.parent, place.grade, place.partial_ids,
                                  place.n_tokens - n_partial, place.images)};
}

// From the longest run of blocks down: the first one with a state behind it has the longest.
std::optional<SessionCache::Found> SessionCache::find(const SessionQuery& query) const {
  if (entries_.empty()) return std::nullopt;
  for (auto n_blocks = static_cast<int64_t>(query.keys.size()); n_blocks >= 0; --n_blocks) {
    const BlockKey& parent =
        n_blocks == 0 ? query.root : query.keys[static_cast<size_t>(n_blocks - 1)];
    const int64_t begin = n_blocks * kBlockTokens;
    if (begin + kBlockTokens <= query.min_tokens) break;
    std::optional<Found> best;
    for (auto it = entries_.lower_bound({parent, {}});
         it != entries_.end() && it->first.parent == parent; ++it) {
      const Entry& entry = it->second;
      const auto n_tokens = static_cast<int64_t>(query.tokens.size());
      if (entry.n_tokens > n_tokens || entry.n_tokens < query.min_tokens) continue;
      if (entry.grade == StateGrade::kBounded && !query.takes_bounded) continue;
      const SessionName name = session_name(
          {.parent = parent,
           .grade = entry.grade,
           .n_tokens = entry.n_tokens,
           .partial_ids = query.tokens.subspan(static_cast<size_t>(begin),
                                               static_cast<size_t>(entry.n_tokens - begin)),
           .images = query.images});
      if (name != it->first) continue;
      const bool longer = !best || entry.n_tokens > best->n_tokens;
      if (longer || (entry.n_tokens == best->n_tokens && entry.grade == StateGrade::kExact)) {
        best = {name, entry.n_tokens, entry.grade, &entry.state};
      }
    }
    if (best) return best;
  }
  return std::nullopt;
}

bool SessionCache::touch(const SessionName& name, int64_t now_us) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return false;
  ++counters_.found_again;
  found->second.last_us = now_us;
  place_last(found);
  return true;
}

void SessionCache::use(const SessionName& name, int64_t now_us) {
  const auto found = entries_.find(name);
  FATHOM_CHECK(found != entries_.end());
  ++counters_.used;
  ++found->second.n_uses;
  found->second.last_us = now_us;
  place_last(found);
}

void SessionCache::keep(const SessionPlace& place, SessionState state, int64_t now_us) {
  const int64_t bytes = state.bytes();
  if (bytes > limits_.max_bytes) return;
  while (bytes_ + bytes > limits_.max_bytes) {
    ++counters_.evicted;
    erase(order_.begin()->second);
  }
  const auto [entry, added] = entries_.emplace(session_name(place), Entry{});
  FATHOM_CHECK(added);
  entry->second = {.state = std::move(state),
                   .n_tokens = place.n_tokens,
                   .grade = place.grade,
                   .last_us = now_us,
                   .owner = place.owner};
  entry->second.order = ++last_order_;
  order_.emplace(last_order_, entry);
  look_us_ =
      entries_.size() == 1 ? now_us + limits_.ttl_us : std::min(look_us_, now_us + limits_.ttl_us);
  bytes_ += bytes;
  ++counters_.kept;
}

void SessionCache::outgrow(const SessionName& name) {
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.n_uses > 1) return;
  order_.erase(found->second.order);
  found->second.order = --first_order_;
  order_.emplace(first_order_, found);
}

void SessionCache::expire(int64_t now_us) {
  if (entries_.empty() || now_us < look_us_) return;
  int64_t next_us = now_us + limits_.ttl_us;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto entry = it++;
    const int64_t end_us = entry->second.last_us + limits_.ttl_us;
    if (end_us > now_us) {
      next_us = std::min(next_us, end_us);
      continue;
    }
    ++counters_.expired;
    erase(entry);
  }
  look_us_ = next_us;
}

int64_t SessionCache::clear(std::optional<uint64_t> owner) {
  int64_t n_dropped = 0;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto entry = it++;
    if (owner && entry->second.owner != *owner) continue;
    erase(entry);
    ++n_dropped;
  }
  counters_.cleared += n_dropped;
  return n_dropped;
}

void SessionCache::place_last(Entries::iterator entry) {
  order_.erase(entry->second.order);
  entry->second.order = ++last_order_;
  order_.emplace(last_order_, entry);
}

void SessionCache::erase(Entries::iterator entry) {
  bytes_ -= entry->second.state.bytes();
  order_.erase(entry->second.order);
  entries_.erase(entry);
}

void SessionCache::check() const {
  int64_t bytes = 0;
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    bytes += it->second.state.bytes();
    FATHOM_CHECK(order_.at(it->second.order) == it);
    FATHOM_CHECK(it->second.last_us + limits_.ttl_us >= look_us_);
  }
  FATHOM_CHECK(order_.size() == entries_.size());
  FATHOM_CHECK(bytes == bytes_ && bytes_ <= limits_.max_bytes);
}

}  // namespace fathom
