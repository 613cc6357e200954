// Goal: a process goes on from states that another one left, without a row computed twice; what is
// lost, late, of another shape, grade, tenant or prompt is replayed, and nobody waits for longer
// than the bound. Method: the engine with the hashing executor and tiers in virtual time; every
// answer is compared with the defined one.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "cache/faulty_state_tier_testing.h"
#include "cache/faulty_tier_testing.h"
#include "engine/engine.h"
#include "hash_executor.h"

namespace fathom {
namespace {

constexpr int64_t kRoom = 8 << 20;
constexpr int64_t kWaitUs = 5000;

class Fetches : public testing::TestWithParam<bool> {
 protected:
  Fetches() : hash_({.deploy = GetParam(), .window = 7, .context = 1000, .n_blocks = 40}) {
    use({});
  }

  void use(const StateFaults& faults, int64_t block_delay_us = 0) {
    engine_.reset();
    blocks_ = std::make_unique<FaultyTier>(kRoom, TierFaults{.delay_us_max = block_delay_us});
    states_ = std::make_unique<FaultyStateTier>(faults);
    options_.tiers = {{"shared", blocks_.get()}};
    options_.sessions = {.max_bytes = 1 << 20, .ttl_us = 10'000'000};
    options_.states = states_.get();
    options_.states_us_max = kWaitUs;
    start();
  }

  // A process of its own, with nothing but what is outside it.
  void start() {
    engine_.reset();
    executor_ = std::make_unique<HashExecutor>(hash_);
    engine_ = std::make_unique<Engine>(*executor_, options_);
    requests_.clear();
    answers_.clear();
    usage_.clear();
  }

  std::vector<int32_t> fresh(int64_t n) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < n; ++i, ++last_id_)
      ids.push_back((last_id_ * 7 + last_id_ / 900) % 900);
    return ids;
  }

  RequestId submit(const std::vector<int32_t>& prompt, RestoreGrade grade = RestoreGrade::kExact,
                   const std::string& salt = "") {
    Request request = {.tenant_salt = salt, .prompt = prompt, .max_tokens = 5, .restore = grade};
    request.sampling.seed = 3;
    const auto id = engine_->submit(request);
    EXPECT_TRUE(id);
    requests_[*id] = request;
    answers_.erase(*id);  // another engine's
    return *id;
  }

  bool tick() {
    now_us_ += 100;
    blocks_->set_time(now_us_);
    states_->set_time(now_us_);
    const bool more = engine_->tick(now_us_);
    engine_->check();
    for (const Output& output : engine_->take_outputs(100)) {
      auto& answer = answers_[output.request];
      for (const SampledToken& token : output.tokens) answer.push_back(token.id);
      if (output.finish == EndReason::kNone) continue;
      usage_[output.request] = output.usage;
      const Request& request = requests_.at(output.request);
      if (!output.usage.exact || output.finish != EndReason::kLength) continue;
      EXPECT_EQ(answer, hash_answer(hash_, request.prompt, request.max_tokens, 3));
    }
    return more;
  }

  void finish_all() {
    while (tick()) {
    }
    EXPECT_EQ(engine_->load().n_pinned_blocks, 0);
    EXPECT_EQ(engine_->load().n_slots, 0);
  }

  Usage run(const std::vector<int32_t>& prompt, RestoreGrade grade = RestoreGrade::kExact,
            const std::string& salt = "") {
    const RequestId id = submit(prompt, grade, salt);
    finish_all();
    last_ = answers_.at(id);
    return usage_.at(id);
  }

  // A turn, and the prompt of the next one.
  std::vector<int32_t> turn(std::vector<int32_t> prompt,
                            RestoreGrade grade = RestoreGrade::kExact) {
    run(prompt, grade);
    prompt.insert(prompt.end(), last_.begin(), last_.end());
    for (const int32_t id : fresh(9)) prompt.push_back(id);
    return prompt;
  }

  const EngineCounters& counters() const { return engine_->counters(); }
  int64_t exact_replay() const { return executor_->limits().exact_replay_rows; }

  const HashOptions hash_;
  EngineOptions options_;
  std::unique_ptr<FaultyTier> blocks_;
  std::unique_ptr<FaultyStateTier> states_;
  std::unique_ptr<HashExecutor> executor_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, Request> requests_;
  std::map<RequestId, std::vector<int32_t>> answers_;
  std::map<RequestId, Usage> usage_;
  std::vector<int32_t> last_;
  int64_t now_us_ = 0;
  int32_t last_id_ = 0;
};

TEST_P(Fetches, AnotherProcessGoesOnWithoutReplay) {
  use({.delay_us_max = 1000}, 1000);
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t i = 0; i < 12; ++i) prompts.push_back(fresh(64 + 37 * i));
  for (int round = 0; round < 3; ++round) {
    for (auto& prompt : prompts) {
      const auto known = static_cast<int64_t>(prompt.size()) - 10;
      const auto n = static_cast<int64_t>(prompt.size());
      prompt = turn(prompt);
      const Usage usage = usage_.begin()->second;
      usage_.clear();
      EXPECT_EQ(usage.replayed_tokens, 0);
      if (round == 0) continue;
      EXPECT_EQ(usage.cached_tokens, known) << n;
      EXPECT_EQ(usage.computed_tokens, n - known + 4);
    }
    EXPECT_EQ(counters().n_fetched_states, round == 0 ? 0 : 12);
    EXPECT_EQ(counters().n_session_hits, round == 0 ? 0 : 12);
    start();
  }
}

TEST_P(Fetches, WhatIsLostOrOfAnotherShapeIsReplayed) {
  for (const StateFaults faults : {StateFaults{.lose_rate = 1}, StateFaults{.unfit_rate = 1},
                                   StateFaults{.drop_rate = 1}, StateFaults{.pause_rate = 1}}) {
    use(faults);
    for (int i = 0; i < 6; ++i) {
      const std::vector<int32_t> prompt = turn(fresh(250 + i));
      start();
      const Usage usage = run(prompt);
      EXPECT_EQ(usage.replayed_tokens, exact_replay());
      EXPECT_EQ(usage.cached_tokens, (static_cast<int64_t>(prompt.size()) - 10) / 64 * 64);
      EXPECT_EQ(counters().n_unfit_states, faults.unfit_rate > 0 ? 1 : 0);
    }
  }
}

TEST_P(Fetches, NobodyWaitsLongerThanTheBound) {
  use({.late_rate = 1, .delay_us_max = 100'000});
  const std::vector<int32_t> prompt = turn(fresh(250));
  start();
  const int64_t begin_us = now_us_;
  const RequestId id = submit(prompt);
  while (engine_->load().n_running == 0) tick();
  EXPECT_LE(now_us_ - begin_us, kWaitUs + 300);
  EXPECT_GE(now_us_ - begin_us, kWaitUs);
  finish_all();
  EXPECT_EQ(usage_.at(id).replayed_tokens, exact_replay());
  EXPECT_EQ(counters().n_late_fetches, 1);
  EXPECT_LE(counters().fetch_us, kWaitUs + 200);
}

TEST_P(Fetches, BlocksAndStateComeTogether) {
  use({.delay_us_max = 4000}, 4000);
  for (int i = 0; i < 10; ++i) {
    const std::vector<int32_t> prompt = turn(fresh(400));
    start();
    const int64_t begin_us = now_us_;
    submit(prompt);
    while (engine_->load().n_running == 0) tick();
    EXPECT_LE(now_us_ - begin_us, 4000 + 300);  // and not their sum
    finish_all();
    EXPECT_EQ(counters().replayed_tokens, 0);
  }
}

TEST_P(Fetches, AnOwnStateIsTakenUnlessThereIsALongerOne) {
  std::vector<int32_t> prompt = turn(fresh(150));
  const int64_t n_finds = states_->counters().finds;
  prompt = turn(prompt);
  EXPECT_EQ(states_->counters().finds, n_finds);
  // Another process takes the next turns; this one gets the conversation back later.
  std::unique_ptr<Engine> first = std::move(engine_);
  std::unique_ptr<HashExecutor> its_executor = std::move(executor_);
  start();
  for (int i = 0; i < 8; ++i) prompt = turn(prompt);
  EXPECT_EQ(counters().replayed_tokens, 0);
  engine_ = std::move(first);
  std::swap(executor_, its_executor);
  const auto n = static_cast<int64_t>(prompt.size());
  const Usage usage = run(prompt);
  EXPECT_EQ(usage.cached_tokens, n - 10);
  EXPECT_EQ(usage.replayed_tokens, 0);
  engine_.reset();
}

TEST_P(Fetches, GradesAndTenantsAreApart) {
  std::vector<int32_t> prompt = fresh(250);
  run(prompt);
  EXPECT_GT(states_->n_states(), 0);
  start();
  EXPECT_EQ(run(prompt, RestoreGrade::kExact, "another tenant").cached_tokens, 0);
  EXPECT_EQ(counters().n_fetched_states, 0);
  // States of a bounded request are for bounded ones.
  use({});
  options_.sessions.ttl_us = 1;
  options_.states = nullptr;
  start();
  run(prompt);  // its blocks alone are left
  options_.sessions.ttl_us = 10'000'000;
  options_.states = states_.get();
  start();
  const std::vector<int32_t> next = turn(prompt, RestoreGrade::kBounded);
  EXPECT_GT(states_->n_states(), 0);
  start();
  const Usage bounded = run(next, RestoreGrade::kBounded);
  EXPECT_FALSE(bounded.exact);
  EXPECT_EQ(bounded.replayed_tokens, 0);
  start();
  const Usage exact = run(next);
  EXPECT_TRUE(exact.exact);
  EXPECT_EQ(exact.replayed_tokens, exact_replay());
}

TEST_P(Fetches, ACancelledFetchLeavesNothingBehind) {
  use({.delay_us_max = 3000}, 2000);
  const std::vector<int32_t> prompt = turn(fresh(400));
  for (int64_t n_ticks = 1; n_ticks < 60; ++n_ticks) {
    start();
    const RequestId id = submit(prompt);
    for (int64_t i = 0; i < n_ticks; ++i) tick();
    engine_->cancel(id);
    finish_all();
    EXPECT_EQ(engine_->load().n_restoring, 0);
    states_->forget_finds();
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, Fetches, testing::Bool(), [](const auto& info) {
  return info.param ? std::string("Deploy") : std::string("Exact");
});

}  // namespace
}  // namespace fathom
