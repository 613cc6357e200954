#pragma once

// Scenario: what a seed decides of a simulated life before and while it is lived: pools, limits,
// faults, and what clients ask for.

#include <optional>
#include <random>
#include <vector>

#include "cache/faulty_state_tier_testing.h"
#include "cache/faulty_tier_testing.h"
#include "engine/engine.h"
#include "hash_executor.h"

namespace fathom {

// How a client takes what it is sent.
enum class ClientKind : uint8_t {
  kReader,    // at once
  kSlow,      // a token now and then; the server ends it when too many wait for it
  kVanished,  // goes away in the middle without a word; the server finds out some time later
};

// What a conversation goes on from: the request, and an answer to it as far as it came.
struct Turn {
  Request request;
  std::vector<int32_t> answer;
};

// The tier of a life that has one.
struct TierScenario {
  int64_t n_blocks = 0;  // that it has room for
  TierFaults faults;
  int64_t restore_us_max = 0;
  int64_t restore_reads_max = 1;
  int64_t fast_blocks = 0;  // of a second one in front of it; 0: none
  TierFaults fast_faults;
};

// The place of a life where states are shared with other processes.
struct StateScenario {
  StateFaults faults;
  int64_t states_us_max = 0;
};

class Scenario {
 public:
  explicit Scenario(uint64_t seed);

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }

  HashOptions hash();
  EngineOptions engine();
  const std::optional<TierScenario>& tier() const { return tier_; }
  const std::optional<StateScenario>& states() const { return states_; }
  // Whether the process is killed now and started again with what its tiers have.
  bool restarts() { return tier_ && tier_random_() % 80 == 0; }
  Request request();
  // The next one of a conversation, or another one from the same point.
  Request request_after(const Turn& turn);
  ClientKind client();
  // From one tick to the next; mostly little, now and then past the life of what is kept, an hour,
  // or back.
  int64_t clock_step_us();

  // Failures that may cost a request.
  bool injects() const { return hash_.failure_rate + hash_.allocation_failure_rate > 0; }
  bool repeats() const { return injects() || hash_.copy_failure_rate > 0; }
  const HashOptions& options() const { return hash_; }

 private:
  std::vector<int32_t> random_tokens(int64_t n);
  void decide(Request& request);
  TierScenario random_tier();
  StateScenario random_states();

  uint64_t seed_;
  std::mt19937_64 random_;
  HashOptions hash_;
  bool odd_clients_ = false;
  bool clock_jumps_ = false;
  // Apart, so that a life without a tier is what it was before there were any.
  std::mt19937_64 tier_random_;
  std::optional<TierScenario> tier_;
  std::mt19937_64 state_random_;  // likewise
  std::optional<StateScenario> states_;
  SessionLimits sessions_;
  std::vector<std::vector<int32_t>> documents_;
};

}  // namespace fathom
