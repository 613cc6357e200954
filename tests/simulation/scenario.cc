#include "scenario.h"

#include <algorithm>

namespace fathom {

Scenario::Scenario(uint64_t seed)
    : seed_(seed), random_(seed * 2 + 1), tier_random_(seed * 2 + 1), state_random_(seed * 2 + 1) {
  hash_ = {.deploy = one_in(2), .window = 2 + below(6), .seed = seed_};
  hash_.n_sequences = 1 + below(5);
  hash_.n_blocks = 8 + below(20);
  hash_.max_rows = hash_.window + below(40);
  hash_.failure_rate = one_in(4) ? 0.02 : 0;
  hash_.allocation_failure_rate = one_in(4) ? 0.05 : 0;
  hash_.copy_failure_rate = one_in(6) ? 0.05 : 0;
  odd_clients_ = one_in(3);
  clock_jumps_ = one_in(4);
  if (!one_in(4)) sessions_ = {.max_bytes = 2000 + below(80'000), .ttl_us = 5000 + below(300'000)};
  for (int i = 0; i < 3; ++i) documents_.push_back(random_tokens(300));
  if (seed % 2 == 1) tier_ = random_tier();
  if (seed % 4 == 1) states_ = random_states();
}

// A third of them without a fault.
TierScenario Scenario::random_tier() {
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(tier_random_() % n); };
  TierScenario tier = {.n_blocks = 5 + below(100),
                       .restore_us_max = 1 + below(20'000),
                       .restore_reads_max = 1 + below(12),
                       .fast_blocks = below(2) * (1 + below(20))};
  tier.faults = {.delay_us_max = below(4000), .max_reads = 1 + below(8), .seed = seed_};
  if (below(3) == 0) return tier;
  tier.fast_faults = {.lose_rate = 0.05, .bad_rate = 0.05, .seed = seed_ + 1};
  tier.faults.drop_rate = static_cast<double>(below(3)) * 0.1;
  tier.faults.lose_rate = static_cast<double>(below(3)) * 0.05;
  tier.faults.bad_rate = static_cast<double>(below(3)) * 0.05;
  tier.faults.late_rate = static_cast<double>(below(3)) * 0.02;
  return tier;
}

StateScenario Scenario::random_states() {
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(state_random_() % n); };
  StateScenario states = {.states_us_max = 1 + below(10'000)};
  states.faults = {.delay_us_max = below(4000), .ttl_us = sessions_.ttl_us, .seed = seed_ * 2 + 1};
  if (below(3) == 0) return states;
  states.faults.drop_rate = static_cast<double>(below(3)) * 0.1;
  states.faults.lose_rate = static_cast<double>(below(3)) * 0.1;
  states.faults.unfit_rate = static_cast<double>(below(3)) * 0.1;
  states.faults.pause_rate = static_cast<double>(below(3)) * 0.1;
  states.faults.late_rate = static_cast<double>(below(3)) * 0.05;
  return states;
}

HashOptions Scenario::hash() { return hash_; }

EngineOptions Scenario::engine() {
  EngineOptions options;
  options.mailbox = {
      .max_live = 3 + below(12), .max_live_of_tenant = 2 + below(8), .max_outputs = 2 + below(12)};
  options.scheduler.aging_us = 5000;
  options.scheduler.min_run_us = one_in(2) ? 0 : 4000;
  options.scheduler.min_prefill_rows = 1 + below(8);
  options.scheduler.max_parked = below(4);
  options.block_cost = {.first = 1, .slope = 0.1};
  options.sessions = sessions_;
  options.max_unsent = 1 + below(8);
  return options;
}

std::vector<int32_t> Scenario::random_tokens(int64_t n) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>(below(kPoisonToken)));
  return tokens;
}

Request Scenario::request() {
  Request request;
  const int64_t tenant = below(3);
  request.tenant = static_cast<TenantId>(tenant);
  request.tenant_salt = "salt " + std::to_string(tenant);
  request.tenant_weight = static_cast<double>(1 + tenant);
  request.priority = static_cast<int>(below(3));
  if (one_in(6)) request.timeout_us = 1 + below(100'000);
  const std::vector<int32_t>& document = documents_[static_cast<size_t>(below(3))];
  // Often cut at a block edge or one beside it.
  int64_t n_shared = below(static_cast<int64_t>(document.size()));
  if (one_in(2)) n_shared = std::clamp<int64_t>(n_shared / 64 * 64 + below(3) - 1, 0, 299);
  request.prompt.assign(document.begin(), document.begin() + n_shared);
  for (const int32_t token : random_tokens(1 + below(20))) request.prompt.push_back(token);
  if (one_in(40)) request.prompt.push_back(kPoisonToken);
  decide(request);
  return request;
}

// Most often all of the answer; sometimes another one came back than was sent, or the prompt ends
// otherwise, as with a template that drops reasoning.
Request Scenario::request_after(const Turn& turn) {
  Request request = turn.request;
  if (one_in(8)) {  // the same words from somebody else
    const int64_t tenant = below(3);
    request.tenant = static_cast<TenantId>(tenant);
    request.tenant_salt = "salt " + std::to_string(tenant);
  }
  const int64_t kind = below(8);
  if (kind == 0) request.prompt.pop_back();
  const auto n = static_cast<int64_t>(turn.answer.size());
  const int64_t n_back = kind == 0 ? 0 : kind == 1 ? below(n + 1) : n;
  request.prompt.insert(request.prompt.end(), turn.answer.begin(),
                        turn.answer.begin() + static_cast<ptrdiff_t>(n_back));
  for (const int32_t token : random_tokens(one_in(8) && n_back > 0 ? 0 : 1 + below(20))) {
    request.prompt.push_back(token);
  }
  if (request.prompt.empty()) request.prompt.push_back(1);
  request.stop_ids.clear();
  request.n_choices = 1;
  request.timeout_us = 0;
  request.restore = RestoreGrade::kExact;
  decide(request);
  return request;
}

// All but who asks what.
void Scenario::decide(Request& request) {
  request.max_tokens = 1 + below(one_in(4) ? 120 : 12);
  if (one_in(3)) {
    for (int32_t id = 0; id < 40; ++id) request.stop_ids.push_back(id);
  }
  request.sampling.seed = static_cast<uint64_t>(below(100));
  if (one_in(5)) request.n_choices = 1 + below(hash_.n_sequences);
  if (one_in(4)) request.restore = RestoreGrade::kBounded;
}

ClientKind Scenario::client() {
  if (!odd_clients_ || !one_in(3)) return ClientKind::kReader;
  return one_in(2) ? ClientKind::kSlow : ClientKind::kVanished;
}

int64_t Scenario::clock_step_us() {
  constexpr int64_t kHourUs = 3'600'000'000;
  if (sessions_.max_bytes > 0 && one_in(80)) return sessions_.ttl_us + below(2000);
  if (clock_jumps_ && one_in(100)) return one_in(2) ? kHourUs : -kHourUs;
  return below(2000);
}

}  // namespace fathom
