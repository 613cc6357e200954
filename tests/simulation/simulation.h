#pragma once

// One random life of the engine, decided by a seed alone: clients of several tenants, shared
// prefixes, conversations of several turns that part and pause, forks, cancellations, time limits,
// priorities, slow readers and clients that vanish, failing steps and allocations, jumps of the
// clock, pools too small for all, virtual time. In every second life there are slow, faulty tiers
// behind the pool, and the process is killed now and then and started again with what they have; in
// half of these lives the states of sessions outlive it too, in a slow, faulty place.
// What must hold is checked after every tick and at the end.

#include <cstdint>
#include <string>

namespace fathom {

struct SimulationResult {
  std::string failure;  // the first thing that was wrong, with the seed; empty: nothing
  int64_t n_requests = 0;
  int64_t n_refused = 0;
  int64_t n_ticks = 0;
  int64_t n_rows = 0;
  int64_t n_compared = 0;       // whole answers that were compared with the one computed alone
  int64_t n_partial = 0;        // beginnings of answers that were cut short, compared likewise
  int64_t n_bounded = 0;        // answers after a bounded replay: not comparable
  int64_t n_failed = 0;         // choices lost to failures
  int64_t n_lost = 0;           // requests lost to failures, but for those that fail every step
  int64_t n_injected = 0;       // failures of steps and of allocations
  int64_t n_failed_copies = 0;  // between the pools and the host; they cost no request
  int64_t n_slow = 0;           // requests ended because their client did not keep up
  int64_t n_vanished = 0;       // and because it went away
  // Steps that a request was live, over those that it and all that went before it take alone.
  double longest_wait = 0;
  uint64_t trace = 0;  // a hash of every output and when it came
  int64_t n_cached_tokens = 0;
  int64_t n_replayed_tokens = 0;
  int64_t n_parked = 0;
  int64_t n_dropped = 0;
  int64_t n_copied = 0;
  int64_t n_evicted = 0;
  int64_t n_overtaken = 0;
  int64_t n_states_kept = 0;  // of sessions
  int64_t n_states_used = 0;
  int64_t n_states_evicted = 0;
  int64_t n_states_expired = 0;
  int64_t n_restarts = 0;  // of lives with tiers
  int64_t n_restores = 0;
  int64_t n_cut_restores = 0;
  int64_t n_late_restores = 0;
  int64_t n_restored_tokens = 0;
  int64_t n_fetches = 0;  // waits for a state of another process, of lives with a place for them
  int64_t n_fetched_states = 0;
  int64_t n_unfit_states = 0;
  int64_t n_late_fetches = 0;
  int64_t n_bad = 0;  // reads of tiers that failed their checks

  void add(const SimulationResult& other);
};

inline constexpr double kWaitMax = 4;

SimulationResult simulate(uint64_t seed);

}  // namespace fathom
