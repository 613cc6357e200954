// simulate FIRST COUNT: runs the simulation over many seeds and prints what it met; exits 1 at the
// first failure with the seed that shows it again.

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "simulation.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: simulate FIRST_SEED COUNT\n");
    return 2;
  }
  const uint64_t first = std::strtoull(argv[1], nullptr, 10);
  const uint64_t count = std::strtoull(argv[2], nullptr, 10);
  fathom::SimulationResult all;
  for (uint64_t seed = first; seed < first + count && all.failure.empty(); ++seed) {
    all.add(fathom::simulate(seed));
  }
  std::printf("requests %ld refused %ld ticks %ld rows %ld\n", all.n_requests, all.n_refused,
              all.n_ticks, all.n_rows);
  std::printf("compared %ld partial %ld bounded %ld lost to injected failures %ld\n",
              all.n_compared, all.n_partial, all.n_bounded, all.n_failed);
  std::printf("cached %ld replayed %ld parked %ld dropped %ld copied %ld evicted %ld\n",
              all.n_cached_tokens, all.n_replayed_tokens, all.n_parked, all.n_dropped, all.n_copied,
              all.n_evicted);
  std::printf("states kept %ld used %ld evicted %ld expired %ld failed copies %ld overtaken %ld\n",
              all.n_states_kept, all.n_states_used, all.n_states_evicted, all.n_states_expired,
              all.n_failed_copies, all.n_overtaken);
  std::printf("injected %ld lost %ld slow %ld vanished %ld longest wait %.2f trace %016lx\n",
              all.n_injected, all.n_lost, all.n_slow, all.n_vanished, all.longest_wait, all.trace);
  std::printf("restarts %ld restores %ld cut %ld late %ld restored %ld bad %ld\n", all.n_restarts,
              all.n_restores, all.n_cut_restores, all.n_late_restores, all.n_restored_tokens,
              all.n_bad);
  std::printf("fetches %ld with a state %ld unfit %ld late %ld\n", all.n_fetches,
              all.n_fetched_states, all.n_unfit_states, all.n_late_fetches);
  std::printf("cpu %.2f s\n", static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
  if (all.failure.empty()) return 0;
  std::printf("failed: %s\n", all.failure.c_str());
  return 1;
}
