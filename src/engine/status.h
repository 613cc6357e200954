#pragma once

// What an engine tells of itself. Values: the engine thread fills them in, others get copies
// through the mailbox.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/prefix_cache.h"
#include "cache/prefix_tiers.h"
#include "cache/state_tier.h"
#include "engine/request.h"

namespace fathom {

struct EngineCounters {
  int64_t n_steps = 0;
  int64_t n_rows = 0;
  int64_t n_tokens = 0;  // drawn, stop ids among them
  int64_t n_parked = 0;
  int64_t n_dropped = 0;
  int64_t n_overtaken = 0;  // started over, further on, from what others computed meanwhile
  int64_t n_failed_steps = 0;
  int64_t prompt_rows = 0;   // rows of steps that were prompts, replayed ones among them
  int64_t step_us = 0;       // in steps that ended well, by EngineOptions::clock_us
  int64_t finished[6] = {};  // choices, by EndReason

  // As in Usage, of all requests; those of prompts are counted when they start.
  int64_t prompt_tokens = 0;
  // Of prompts whose first token was drawn: what was cached and not computed again.
  int64_t cached_tokens = 0;
  int64_t replayed_tokens = 0;
  int64_t computed_tokens = 0;
  int64_t answered_tokens = 0;
  // Requests that started without a hit, from a kept state, and with a hit whose windows were
  // rebuilt exactly or by a bounded replay.
  int64_t n_no_hit = 0;
  int64_t n_session_hits = 0;
  int64_t n_exact_hits = 0;
  int64_t n_bounded_hits = 0;

  // Of requests that waited for blocks from a tier.
  int64_t n_restores = 0;
  int64_t n_cut_restores = 0;   // got fewer than were promised: lost, bad or late
  int64_t n_late_restores = 0;  // of those, the late ones
  int64_t restored_tokens = 0;
  int64_t restore_us = 0;  // that they waited, by the engine's time

  // Of requests that waited for a state from another process.
  int64_t n_fetches = 0;
  int64_t n_fetched_states = 0;
  int64_t n_unfit_states = 0;  // came verified, but are none of this engine's shape
  int64_t n_late_fetches = 0;
  int64_t fetch_us = 0;
};

// What is held at this moment; all zero once nothing is live, but for the last part.
struct EngineLoad {
  int64_t n_waiting = 0;
  int64_t n_parked = 0;
  int64_t n_restoring = 0;   // blocks or a state come from a tier
  int64_t n_running = 0;     // the sum of the next three
  int64_t n_replaying = 0;   // windows are rebuilt where entries are there
  int64_t n_prefilling = 0;  // the rest of a prompt, or an answer that is fed again
  int64_t n_decoding = 0;
  int64_t n_live = 0;
  int64_t n_slots = 0;
  int64_t n_pinned_blocks = 0;  // neither free nor idle in the cache
  int64_t parked_bytes = 0;     // windows of parked choices, in host memory
  int64_t tail_bytes = 0;       // rows that wait for the decoder, of running and parked choices
  // Until the first request that runs ends, where its answer comes to the share of its most tokens
  // that answers came to lately; 0: nothing runs, or steps are not timed.
  int64_t next_end_us = 0;
  int64_t wait_us_max = 0;  // since the arrival of the one that has waited longest to start
  // Kept for requests to come, whether or not anything is live.
  int64_t n_sessions = 0;
  int64_t session_bytes = 0;
};

struct TierReport {
  std::string name;
  TierCounters counters;
};

// As of one tick. An output that was taken is counted in every status that is read after it.
struct EngineStatus {
  int64_t now_us = 0;  // of the engine's time
  EngineCounters counters;
  EngineLoad load;
  PrefixCounters prefix;
  int64_t n_blocks = 0;
  int64_t n_idle_blocks = 0;  // cached, and nobody's at this moment; pinned and free are the rest
  int64_t block_bytes = 0;
  int64_t n_slots = 0;
  int64_t slot_bytes = 0;
  int64_t session_bytes_max = 0;
  std::vector<TierReport> tiers;  // the fastest first
  RestoreCounters restores;
  std::optional<StateCounters> states;  // where there is a place for them
};

// Asks what the caches hold, once they have dropped what nobody uses: nothing, all, or what one
// tenant published.
struct CacheOrder {
  bool clear = false;
  std::optional<TenantId> tenant;
};

struct CacheReport {
  EngineStatus status;
  std::map<TenantId, int64_t> cached_blocks;  // by the tenant that published them
  int64_t n_cleared = 0;                      // blocks
  int64_t n_states_cleared = 0;               // of sessions
};

}  // namespace fathom
