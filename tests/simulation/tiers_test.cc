// Goal: what was computed once comes back from the tiers with the same answers after evictions and
// after another start; what is lost, bad or late is computed; whoever waits holds up nobody and
// leaves nothing behind. Method: the engine with the hashing executor and tiers in virtual time;
// every answer is compared with the defined one.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "cache/faulty_tier_testing.h"
#include "engine/engine.h"
#include "hash_executor.h"

namespace fathom {
namespace {

constexpr int64_t kRoom = 8 << 20;
constexpr int64_t kDelayUs = 1000;

class Tiers : public testing::TestWithParam<bool> {
 protected:
  Tiers() : hash_({.deploy = GetParam(), .window = 7, .context = 1000, .n_blocks = 40}) {}

  void use_tier(const TierFaults& faults) {
    engine_.reset();
    tier_ = std::make_unique<FaultyTier>(kRoom, faults);
    options_.tiers = {{"slow", tier_.get()}};
    start();
  }

  // A process of its own; the tiers are those of the one before.
  void start() {
    engine_.reset();
    executor_ = std::make_unique<HashExecutor>(hash_);
    engine_ = std::make_unique<Engine>(*executor_, options_);
    requests_.clear();  // ids begin anew
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
    return *id;
  }

  bool tick() {
    now_us_ += 100;
    if (tier_) tier_->set_time(now_us_);
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
    return usage_.at(id);
  }

  BlockKey key_of(const std::vector<int32_t>& prompt, size_t block) const {
    KeyChain chain(root_key({}));
    chain.extend(prompt, {});
    return chain.keys()[block];
  }

  const HashOptions hash_;
  EngineOptions options_;
  std::unique_ptr<FaultyTier> tier_;
  std::unique_ptr<HashExecutor> executor_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, Request> requests_;
  std::map<RequestId, std::vector<int32_t>> answers_;
  std::map<RequestId, Usage> usage_;
  int64_t now_us_ = 0;
  int32_t last_id_ = 0;
};

TEST_P(Tiers, EveryFullBlockComesBackAfterAnotherStart) {
  use_tier({.delay_us_max = kDelayUs});
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t i = 0; i < 20; ++i) prompts.push_back(fresh(30 + 37 * i));
  for (const auto& prompt : prompts) run(prompt);
  const TierCounters put = tier_->counters();
  start();
  int64_t n_restored = 0;
  for (const auto& prompt : prompts) {
    const Usage usage = run(prompt);
    const int64_t full = (static_cast<int64_t>(prompt.size()) - 1) / 64 * 64;
    EXPECT_EQ(usage.cached_tokens, full);
    EXPECT_EQ(usage.restored_tokens, full);
    EXPECT_EQ(usage.computed_tokens, static_cast<int64_t>(prompt.size()) - full + 4);
    n_restored += full;
  }
  EXPECT_EQ(engine_->counters().restored_tokens, n_restored);
  EXPECT_EQ(engine_->counters().n_cut_restores, 0);
  // Each was put once, and what came back is not put again.
  EXPECT_EQ(put.kept, put.puts);
  EXPECT_LE(tier_->counters().puts - put.puts, 20);  // blocks that answers have filled
}

TEST_P(Tiers, WhatThePoolHasEvictedComesBack) {
  use_tier({});
  const std::vector<int32_t> prompt = fresh(600);
  run(prompt);
  for (int i = 0; i < 5; ++i) run(fresh(900));
  EXPECT_GT(engine_->cache().counters().evicted, 30);
  const Usage usage = run(prompt);
  EXPECT_EQ(usage.cached_tokens, 576);
  EXPECT_GT(usage.restored_tokens, 0);
  EXPECT_LE(usage.restored_tokens, 576);
}

TEST_P(Tiers, ABadBlockEndsTheHitAndTheRestIsComputed) {
  use_tier({.delay_us_max = kDelayUs});
  const std::vector<int32_t> prompt = fresh(600);
  run(prompt);
  for (const size_t bad : {0, 4, 8}) {
    start();
    tier_->kept().payload_of(key_of(prompt, bad))[11] ^= std::byte{1};
    const Usage usage = run(prompt);
    EXPECT_EQ(usage.cached_tokens, static_cast<int64_t>(bad) * 64);
    EXPECT_EQ(engine_->counters().n_cut_restores, 1);
    EXPECT_EQ(engine_->counters().n_late_restores, 0);
    // It was computed and put again.
    start();
    EXPECT_EQ(run(prompt).cached_tokens, 576);
  }
  EXPECT_EQ(tier_->counters().bad, 3);
}

TEST_P(Tiers, WhatIsLateIsComputed) {
  options_.restore_us_max = 5000;
  use_tier({.delay_us_max = 1'000'000'000});
  const std::vector<int32_t> prompt = fresh(600);
  run(prompt);
  start();
  const int64_t begin_us = now_us_;
  const Usage usage = run(prompt);
  EXPECT_EQ(usage.cached_tokens, 0);
  EXPECT_EQ(engine_->counters().n_late_restores, 1);
  EXPECT_LE(now_us_ - begin_us, 5000 + 100 * 40);
  EXPECT_GT(tier_->n_reads(), 0);
  start();  // the reads end before their memory goes
  EXPECT_EQ(tier_->n_reads(), 0);
}

TEST_P(Tiers, OthersGoOnWhileOneWaits) {
  use_tier({.delay_us_max = 100'000});
  const std::vector<int32_t> prompt = fresh(600);
  run(prompt);
  start();
  const RequestId slow = submit(prompt);
  tick();
  EXPECT_EQ(engine_->load().n_restoring, 1);
  const RequestId quick = submit(fresh(100));
  while (usage_.count(quick) == 0) ASSERT_TRUE(tick());
  EXPECT_EQ(usage_.count(slow), 0U);
  EXPECT_EQ(engine_->load().n_restoring, 1);
  finish_all();
  EXPECT_EQ(usage_.at(slow).restored_tokens, 576);
}

// One reads, and the others start from what it got; where it goes away, the next one reads.
TEST_P(Tiers, RequestsForTheSameBlocksReadThemOnce) {
  for (const bool goes_away : {false, true}) {
    use_tier({.delay_us_max = kDelayUs});
    const std::vector<int32_t> prompt = fresh(600);
    run(prompt);
    start();
    std::vector<RequestId> ids;
    for (int i = 0; i < 4; ++i) ids.push_back(submit(prompt));
    tick();
    EXPECT_EQ(engine_->load().n_restoring, 4);
    EXPECT_EQ(tier_->n_reads(), 9);
    if (goes_away) engine_->cancel(ids[0]);
    finish_all();
    for (size_t i = goes_away ? 1 : 0; i < ids.size(); ++i) {
      EXPECT_EQ(usage_.at(ids[i]).cached_tokens, 576) << i;
    }
    EXPECT_EQ(engine_->counters().n_restores, goes_away ? 2 : 1);
    EXPECT_LE(tier_->counters().gets, goes_away ? 18 : 9);
  }
}

// At every moment of a restore.
TEST_P(Tiers, ACancelledRestoreLeavesNothing) {
  const std::vector<int32_t> prompt = fresh(900);
  int64_t n_restoring = 0;
  for (int n_ticks = 0; n_ticks < 14; ++n_ticks) {
    use_tier({.delay_us_max = kDelayUs});
    run(prompt);
    start();
    const RequestId id = submit(prompt);
    for (int i = 0; i < n_ticks; ++i) tick();
    n_restoring += engine_->load().n_restoring;
    engine_->cancel(id);
    finish_all();
    EXPECT_EQ(engine_->load().n_restoring, 0);
    EXPECT_EQ(run(prompt).cached_tokens, 896);
  }
  EXPECT_GT(n_restoring, 5);
}

// Bounded state comes back to bounded requests, behind the exact blocks that it branched off from.
TEST_P(Tiers, ABranchComesBackToBoundedRequestsAlone) {
  use_tier({.delay_us_max = kDelayUs});
  std::vector<int32_t> prompt = fresh(300);
  run(prompt);
  start();
  const std::vector<int32_t> more = fresh(300);
  prompt.insert(prompt.end(), more.begin(), more.end());
  const Usage first = run(prompt, RestoreGrade::kBounded);
  EXPECT_FALSE(first.exact);
  EXPECT_EQ(first.restored_tokens, 256);
  start();
  const Usage again = run(prompt, RestoreGrade::kBounded);
  EXPECT_FALSE(again.exact);
  EXPECT_EQ(again.restored_tokens, 576);
  start();
  const Usage exact = run(prompt);
  EXPECT_TRUE(exact.exact);
  EXPECT_EQ(exact.restored_tokens, 256);
}

// The branch is lost at its first block: what is computed then goes by its own, exact or new, keys.
TEST_P(Tiers, ALostBranchIsNotContinued) {
  use_tier({.delay_us_max = kDelayUs});
  std::vector<int32_t> prompt = fresh(300);
  run(prompt);
  start();
  const std::vector<int32_t> more = fresh(300);
  prompt.insert(prompt.end(), more.begin(), more.end());
  run(prompt, RestoreGrade::kBounded);
  start();
  tier_->kept().payload_of(key_of(prompt, 2))[0] ^= std::byte{1};
  const Usage cut = run(prompt, RestoreGrade::kBounded);
  EXPECT_EQ(cut.restored_tokens, 128);
  const Usage exact = run(prompt);  // and its answer is the defined one
  EXPECT_TRUE(exact.exact);
  EXPECT_EQ(exact.cached_tokens, 128);
}

TEST_P(Tiers, AFasterTierTakesWhatASlowerOneBrought) {
  use_tier({.delay_us_max = kDelayUs});
  const std::vector<int32_t> prompt = fresh(600);
  run(prompt);
  HostTier fast(kRoom);
  options_.tiers = {{"fast", &fast}, {"slow", tier_.get()}};
  start();
  EXPECT_EQ(run(prompt).restored_tokens, 576);
  EXPECT_EQ(fast.counters().n_blocks, 9);
  start();
  const int64_t n_slow = tier_->counters().gets;
  EXPECT_EQ(run(prompt).restored_tokens, 576);
  EXPECT_EQ(tier_->counters().gets, n_slow);
  const EngineStatus status = engine_->status();
  ASSERT_EQ(status.tiers.size(), 2U);
  EXPECT_EQ(status.tiers[0].name, "fast");
  EXPECT_EQ(status.tiers[0].counters.hits, 9);
  start();
  engine_.reset();  // before the tier goes
}

TEST_P(Tiers, AnotherTenantGetsNothing) {
  use_tier({});
  const std::vector<int32_t> prompt = fresh(600);
  run(prompt, RestoreGrade::kExact, "one");
  start();
  EXPECT_EQ(run(prompt, RestoreGrade::kExact, "two").cached_tokens, 0);
  EXPECT_EQ(run(prompt, RestoreGrade::kExact, "one").restored_tokens, 576);
}

INSTANTIATE_TEST_SUITE_P(Schedules, Tiers, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "Deploy" : "Exact");
});

}  // namespace
}  // namespace fathom
