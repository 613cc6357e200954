#pragma once

// SessionCache: what outlives a turn for minutes and the block grid cannot keep: the state of a
// sequence at one position (its windows, remainders, boundary rows and partial last block), in host
// memory, by the key of all that the state is a function of (state_key).
//
// An entry holds no block of the pool: it is of use while the full blocks before it are cached, and
// an idle session never stands in the way of an admission. Bounded in bytes, the least recently
// used go first, and in time: an entry goes ttl_us after its last use. Time is an argument.
// Thread rule: owned by the engine thread. Source: docs/design.md section 5.

#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "cache/block_key.h"

namespace fathom {

struct SessionLimits {
  int64_t max_bytes = 0;  // 0: nothing is kept
  int64_t ttl_us = 10 * 60'000'000;
};

struct SessionState {
  std::vector<std::byte> windows;  // what the sequence has outside blocks, as its owner wrote it
  std::vector<std::byte> partial;  // bytes of the block that is not full; empty at a block edge

  int64_t bytes() const { return static_cast<int64_t>(windows.size() + partial.size()); }
};

// Where a state belongs: the last key of the full blocks before it, the tokens behind them.
struct SessionPlace {
  BlockKey parent;  // the root where there is no full block
  StateGrade grade = StateGrade::kExact;
  int64_t n_tokens = 0;
  std::span<const int32_t> partial_ids;
  std::span<const ImageSpan> images;
  uint64_t owner = 0;  // cleared under this number
};

struct SessionName {
  BlockKey parent;
  BlockKey key;
  auto operator<=>(const SessionName&) const = default;
};
SessionName session_name(const SessionPlace& place);

// A prompt that looks for a state: the keys of its first blocks that are cached, and its tokens
// that a state may stand behind.
struct SessionQuery {
  BlockKey root;
  std::span<const BlockKey> keys;
  std::span<const int32_t> tokens;
  std::span<const ImageSpan> images;
  bool takes_bounded = false;
  int64_t min_tokens = 0;  // a state behind fewer is of no use
};

struct SessionCounters {
  int64_t kept = 0;
  int64_t found_again = 0;  // was there when it was to be kept
  int64_t used = 0;
  int64_t evicted = 0;  // for want of room
  int64_t expired = 0;
  int64_t cleared = 0;
};

class SessionCache {
 public:
  explicit SessionCache(const SessionLimits& limits) : limits_(limits) {}

  struct Found {
    SessionName name;
    int64_t n_tokens = 0;
    StateGrade grade = StateGrade::kExact;
    const SessionState* state = nullptr;  // until the next call that is not const
  };
  // The state behind most tokens; of two grades there the exact one.
  std::optional<Found> find(const SessionQuery& query) const;

  // Begins the entry's time anew. Whether it was there.
  bool touch(const SessionName& name, int64_t now_us);
  // touch() for a sequence that starts from it.
  void use(const SessionName& name, int64_t now_us);
  // Keeps the state, which is not there yet, where it fits into max_bytes.
  void keep(const SessionPlace& place, SessionState state, int64_t now_us);
  // The one sequence that started from the entry has gone on and left a later one: it goes before
  // others. An entry that several started from is where they part, and stays where it is.
  void outgrow(const SessionName& name);
  // Drops entries whose time is over.
  void expire(int64_t now_us);
  // Drops every entry, or those of one owner; how many.
  int64_t clear(std::optional<uint64_t> owner = std::nullopt);

  const SessionLimits& limits() const { return limits_; }
  int64_t n_entries() const { return static_cast<int64_t>(entries_.size()); }
  int64_t bytes() const { return bytes_; }
  const SessionCounters& counters() const { return counters_; }
  // Stops the program where an invariant does not hold. For tests.
  void check() const;

 private:
  struct Entry {
    SessionState state;
    int64_t n_tokens = 0;
    StateGrade grade = StateGrade::kExact;
    int64_t order = 0;  // its place in order_
    int64_t last_us = 0;
    int64_t n_uses = 0;
    uint64_t owner = 0;
  };
  using Entries = std::map<SessionName, Entry>;

  void place_last(Entries::iterator entry);
  void erase(Entries::iterator entry);

  const SessionLimits limits_;
  Entries entries_;
  std::map<int64_t, Entries::iterator> order_;  // the first to go first
  int64_t bytes_ = 0;
  int64_t first_order_ = 0;
  int64_t last_order_ = 0;
  int64_t look_us_ = 0;  // no entry expires sooner
  SessionCounters counters_;
};

}  // namespace fathom
