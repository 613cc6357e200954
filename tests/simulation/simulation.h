#pragma once

// One random life of the engine, decided by a seed alone: clients of several tenants, shared
// prefixes, forks, cancellations, deadlines, priorities, slow readers, failing steps, pools too
// small for all, virtual time. What must hold is checked after every tick and at the end.

#include <cstdint>
#include <string>

namespace fathom {

struct SimulationResult {
  std::string failure;  // the first thing that was wrong, with the seed; empty: nothing
  int64_t n_requests = 0;
  int64_t n_refused = 0;
  int64_t n_ticks = 0;
  int64_t n_rows = 0;
  int64_t n_compared = 0;  // whole answers that were compared with the one computed alone
  int64_t n_partial = 0;   // beginnings of answers that were cut short, compared likewise
  int64_t n_bounded = 0;   // answers after a bounded replay: not comparable
  int64_t n_failed = 0;    // requests lost to injected failures
  int64_t n_cached_tokens = 0;
  int64_t n_replayed_tokens = 0;
  int64_t n_parked = 0;
  int64_t n_dropped = 0;
  int64_t n_copied = 0;
  int64_t n_evicted = 0;

  void add(const SimulationResult& other);
};

SimulationResult simulate(uint64_t seed);

}  // namespace fathom
