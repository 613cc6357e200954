#pragma once

// StateTier: a place outside this process where states of sequences (SessionCache) are kept for
// minutes, under the names that every process gives them, so that another one goes on from them.
//
// Whatever goes wrong there is a miss: put() may drop, and a find brings a state whose every byte
// was verified, or none. Nothing waits for the network: work that does is done by threads of the
// tier's own. Thread rule: all calls from the engine thread. Source: docs/design/tiers.md.

#include <cstdint>
#include <optional>
#include <vector>

#include "cache/session_cache.h"
#include "cache/tier.h"

namespace fathom {

// A state beside its bytes.
struct StateLabel {
  SessionName name;
  int64_t n_tokens = 0;
  StateGrade grade = StateGrade::kExact;
  uint64_t tenant_tag = 0;
  bool operator==(const StateLabel&) const = default;
};

// What a prompt looks for: a SessionQuery that owns what it names, from the first block on behind
// which a state is of use.
struct StateWanted {
  std::vector<BlockKey> parents;  // [i]: of the first_block + i blocks before a state, the last one
  int64_t first_block = 0;
  std::vector<int32_t> tokens;    // from position first_block * kBlockTokens on
  std::vector<ImageSpan> images;  // those that overlap these, at absolute positions
  bool takes_bounded = false;
  int64_t min_tokens = 0;
  uint64_t tenant_tag = 0;
};
StateWanted states_wanted(const SessionQuery& query);

// The states that may stand directly behind parents[i]: `n_partial` tokens further. Nothing where
// the prompt has none there.
std::optional<StateLabel> label_behind(const StateWanted& wanted, size_t i, int64_t n_partial,
                                       StateGrade grade);

struct FoundState {
  TierTicket ticket = {};
  StateLabel label;
  std::optional<SessionState> state;  // nothing: not there, or not to be had
};

struct StateCounters {
  int64_t puts = 0;
  int64_t kept = 0;            // puts that were acknowledged
  int64_t dropped_full = 0;    // the queue was full
  int64_t dropped_paused = 0;  // no attempt is made for a while after failures
  int64_t dropped_failed = 0;
  int64_t finds = 0;
  int64_t hits = 0;
  int64_t missing = 0;
  int64_t bad = 0;  // what was there failed its checks
  int64_t paused = 0;
  int64_t failed = 0;  // of the next three one
  // Of finds and puts.
  int64_t timeouts = 0;  // no whole answer in time
  int64_t refusals = 0;  // no connection, or it ended
  int64_t protocol = 0;  // an answer that is none, or an error
  int64_t connects = 0;
  int64_t put_bytes = 0;  // of `kept`
  int64_t hit_bytes = 0;
};

class StateTier {
 public:
  StateTier() = default;
  StateTier(const StateTier&) = delete;
  StateTier& operator=(const StateTier&) = delete;
  virtual ~StateTier() = default;

  // Takes a copy before it returns. False: dropped, and counted.
  virtual bool put(const StateLabel& label, const SessionState& state) = 0;

  // Begins to look for the state behind most tokens; of two grades there the exact one. Nothing
  // where no attempt is made now: that counts as a miss.
  virtual std::optional<TierTicket> find(StateWanted wanted) = 0;

  // It is of no use any more, and does not come.
  virtual void cancel(TierTicket ticket) = 0;

  // Finds that ended, each once; waits up to timeout_us for the first.
  virtual std::vector<FoundState> poll(int64_t timeout_us = 0) = 0;

  virtual StateCounters counters() const = 0;
};

}  // namespace fathom
