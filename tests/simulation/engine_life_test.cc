// Goal: what the engine promises about single requests: refusals with a time to try again, time
// limits under a clock that jumps, what a cancelled request leaves behind. Method: the engine with
// the hashing executor, ticked by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/engine.h"
#include "hash_executor.h"

namespace fathom {
namespace {

Request request(int64_t n_prompt, int64_t max_tokens) {
  Request made = {.max_tokens = max_tokens};
  for (int64_t i = 0; i < n_prompt; ++i) made.prompt.push_back(static_cast<int32_t>(i % 90));
  return made;
}

// The last output of the request that is alone in the engine.
Output last_output(Engine& engine) {
  Output last;
  for (Output& output : engine.take_outputs(100)) last = std::move(output);
  return last;
}

TEST(EngineLife, ARefusalComesWithATimeByThePaceOfEnds) {
  Mailbox mailbox({.max_live = 3, .max_live_of_tenant = 2});
  const auto tenant = static_cast<TenantId>(1);
  const auto other = static_cast<TenantId>(2);
  const auto send = [&](TenantId of) {
    Request one = request(1, 1);
    one.tenant = of;
    return mailbox.submit(one);
  };
  const auto first = send(tenant);
  const auto second = send(tenant);
  EXPECT_EQ(send(tenant).error().message,
            "queue: wanted fewer than 2 requests of one tenant, found 2");
  EXPECT_EQ(mailbox.retry_us(tenant), kRetryUsMin);  // nothing ended yet
  const auto third = send(other);
  EXPECT_EQ(send(other).error().message, "queue: wanted fewer than 3 requests, found 3");
  mailbox.finished(*first, tenant, 10'000'000);
  mailbox.finished(*third, other, 14'000'000);
  EXPECT_EQ(mailbox.retry_us(other), 4'000'000);
  ASSERT_TRUE(send(tenant));
  ASSERT_TRUE(send(other));
  EXPECT_EQ(mailbox.retry_us(tenant), 6'000'000);  // two ends of three are the tenant's
  mailbox.finished(*second, tenant, 900'000'000'000);
  EXPECT_EQ(mailbox.retry_us(tenant), kRetryUsMax);
}

// Of two that run, the one that has fewer tokens left makes room first.
TEST(EngineLife, ARefusalComesWithTheTimeOfTheFirstEnd) {
  constexpr int64_t kStepUs = 500'000;
  HashExecutor executor({});
  int64_t clock_us = 0;
  EngineOptions options;
  options.clock_us = [&] { return clock_us += kStepUs; };  // each step takes one
  Engine engine(executor, options);
  EXPECT_EQ(engine.retry_us({}), kRetryUsMin);
  ASSERT_TRUE(engine.submit(request(10, 100)));
  ASSERT_TRUE(engine.submit(request(10, 40)));
  for (int64_t now_us = 1; now_us <= 20; ++now_us) engine.tick(now_us);
  const int64_t n_answered = engine.counters().answered_tokens / 2;
  ASSERT_GT(n_answered, 5);
  EXPECT_NEAR(engine.retry_us({}), (40 - n_answered) * kStepUs, kStepUs);
  EXPECT_EQ(last_output(engine).usage.queued_us, 0);
}

TEST(EngineLife, CountersAreTheSumsOfUsage) {
  HashExecutor executor({.deploy = true});
  Engine engine(executor, {});
  Usage sum;
  int64_t n_skipped = 0;
  for (const RestoreGrade grade :
       {RestoreGrade::kExact, RestoreGrade::kExact, RestoreGrade::kBounded}) {
    Request one = request(140, 6);
    one.restore = grade;
    ASSERT_TRUE(engine.submit(one));
    for (int64_t now_us = 1; engine.tick(now_us); ++now_us) {
    }
    const Usage usage = last_output(engine).usage;
    sum.prompt_tokens += usage.prompt_tokens;
    sum.cached_tokens += usage.cached_tokens;
    n_skipped += usage.skipped_tokens();
    sum.replayed_tokens += usage.replayed_tokens;
    sum.computed_tokens += usage.computed_tokens;
    sum.answered_tokens += usage.answered_tokens;
  }
  const EngineCounters counted = engine.mailbox().status().counters;
  EXPECT_EQ(counted.prompt_tokens, 420);
  EXPECT_EQ(counted.prompt_tokens, sum.prompt_tokens);
  EXPECT_EQ(sum.cached_tokens, 2 * 128);
  EXPECT_EQ(counted.cached_tokens, n_skipped);
  EXPECT_GT(n_skipped, 0);
  EXPECT_EQ(counted.replayed_tokens, sum.replayed_tokens);
  EXPECT_GT(counted.replayed_tokens, 0);
  EXPECT_EQ(counted.computed_tokens, sum.computed_tokens);
  EXPECT_EQ(counted.answered_tokens, sum.answered_tokens);
  EXPECT_EQ(counted.n_no_hit, 1);
  EXPECT_EQ(counted.n_exact_hits, 1);
  EXPECT_EQ(counted.n_bounded_hits, 1);
  EXPECT_EQ(counted.prompt_rows, counted.n_rows - 3 * 5);  // the last token is never computed
}

// One slot, so that the second request waits; its prompt is then found, all but the last block.
TEST(EngineLife, AStatusTellsThePhaseOfEach) {
  HashExecutor executor({.n_sequences = 1, .max_rows = 4});
  int64_t clock_us = 0;
  EngineOptions options;
  options.clock_us = [&] { return clock_us += 10; };
  Engine engine(executor, options);
  ASSERT_TRUE(engine.submit(request(140, 6)));
  ASSERT_TRUE(engine.submit(request(140, 6)));
  std::vector<EngineLoad> loads;
  for (int64_t now_us = 1000; engine.tick(now_us); now_us += 1000) {
    loads.push_back(engine.mailbox().status().load);
    engine.take_outputs(100);
  }
  const auto n_ticks = [&](const auto& holds) { return std::ranges::count_if(loads, holds); };
  for (const EngineLoad& load : loads) {
    EXPECT_EQ(load.n_running, load.n_replaying + load.n_prefilling + load.n_decoding);
    EXPECT_EQ(load.n_running, load.n_slots);
    EXPECT_EQ(load.wait_us_max > 0, load.n_waiting > 0 && &load != loads.data());
  }
  EXPECT_EQ(loads[0].n_prefilling, 1);
  EXPECT_EQ(loads[0].n_waiting, 1);
  EXPECT_EQ(loads[3].wait_us_max, 3000);
  EXPECT_EQ(n_ticks([](const EngineLoad& load) { return load.n_waiting == 1; }), 35 + 5);
  EXPECT_GT(n_ticks([](const EngineLoad& load) { return load.n_replaying == 1; }), 0);
  EXPECT_EQ(n_ticks([](const EngineLoad& load) { return load.n_decoding == 1; }), 10);
  const EngineStatus last = engine.mailbox().status();
  EXPECT_EQ(last.load.n_running + last.load.n_waiting, 0);
  EXPECT_EQ(last.counters.step_us, 10 * last.counters.n_steps);
  EXPECT_EQ(last.n_slots, 1);
  EXPECT_EQ(last.slot_bytes, executor.windows().slot_bytes());
  EXPECT_EQ(last.block_bytes, executor.blocks().block_bytes());
}

TEST(EngineLife, ASmallOutboxIsSharedByAll) {
  constexpr int64_t kTokens = 30;
  HashExecutor executor({.n_sequences = 3});
  EngineOptions options;
  options.mailbox.max_outputs = 1;
  Engine engine(executor, options);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(engine.submit(request(10, kTokens)));
  std::map<RequestId, int64_t> most_waited;
  std::map<RequestId, int64_t> last_tick;
  for (int64_t tick = 1; engine.tick(tick); ++tick) {
    for (const Output& output : engine.take_outputs(1)) {
      int64_t& waited = most_waited[output.request];
      waited = std::max(waited, tick - last_tick[output.request]);
      last_tick[output.request] = tick;
    }
  }
  ASSERT_EQ(most_waited.size(), 3U);
  for (const auto& [id, waited] : most_waited) EXPECT_LE(waited, 4);
}

TEST(EngineLife, ATimeLimitEndsARequestAtATokenBoundary) {
  HashExecutor executor({});
  Engine engine(executor, {});
  Request limited = request(10, 300);
  limited.timeout_us = 5000;
  ASSERT_TRUE(engine.submit(limited));
  for (int64_t now_us = 1000; engine.tick(now_us); now_us += 1000) ASSERT_LE(now_us, 6000);
  Output last = last_output(engine);
  EXPECT_EQ(last.finish, EndReason::kDeadline);
  EXPECT_EQ(last.usage.answered_tokens, 5);
  EXPECT_EQ(engine.load().n_pinned_blocks, 0);
  limited.timeout_us = -1;
  EXPECT_EQ(engine.submit(limited).error().message,
            "request: timeout: wanted at least 0 us, found -1");
}

TEST(EngineLife, AClockThatGoesBackStandsStillAndGoesOn) {
  HashExecutor executor({});
  Engine engine(executor, {});
  Request limited = request(10, 300);
  limited.timeout_us = 1000;
  ASSERT_TRUE(engine.submit(limited));
  EXPECT_TRUE(engine.tick(50'000));
  EXPECT_TRUE(engine.tick(50'600));
  EXPECT_TRUE(engine.tick(100));
  EXPECT_TRUE(engine.tick(499));
  EXPECT_FALSE(engine.tick(500));
  EXPECT_EQ(last_output(engine).finish, EndReason::kDeadline);
}

TEST(EngineLife, WhatACancelledRequestHadPrefilledStaysCached) {
  HashExecutor executor({.max_rows = 32});
  Engine engine(executor, {});
  const auto id = engine.submit(request(300, 5));
  ASSERT_TRUE(id);
  for (int i = 0; i < 5; ++i) engine.tick(i);  // 160 rows: two whole blocks
  engine.cancel(*id);
  EXPECT_FALSE(engine.tick(5));
  const Output cut = last_output(engine);
  EXPECT_EQ(cut.finish, EndReason::kCancelled);
  EXPECT_EQ(cut.usage.computed_tokens, 160);
  ASSERT_TRUE(engine.submit(request(300, 5)));
  while (engine.tick(6)) {
  }
  Output whole;
  std::vector<int32_t> answer;
  for (const Output& output : engine.take_outputs(100)) {
    for (const SampledToken& token : output.tokens) answer.push_back(token.id);
    whole = output;
  }
  EXPECT_EQ(whole.usage.cached_tokens, 128);
  EXPECT_EQ(whole.usage.computed_tokens, 300 - 128 + 4);  // the last token is never computed
  EXPECT_EQ(answer, hash_answer({}, request(300, 5).prompt, 5, 0));
}

TEST(EngineLife, AFailedAllocationCostsTheRequestThatItHit) {
  HashExecutor executor({.n_sequences = 2, .allocation_failure_rate = 0.3, .seed = 3});
  Engine engine(executor, {});
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(engine.submit(request(20 + i, 3)));
  int64_t n_lost = 0;
  int64_t n_whole = 0;
  bool more = true;
  while (more) {
    more = engine.tick(1);
    engine.check();
    for (const Output& output : engine.take_outputs(100)) {
      n_lost += output.finish == EndReason::kError ? 1 : 0;
      n_whole += output.finish == EndReason::kLength ? 1 : 0;
    }
  }
  EXPECT_EQ(n_lost, executor.n_injected());
  EXPECT_EQ(n_lost + n_whole, 40);
  EXPECT_GT(n_lost, 3);
  EXPECT_GT(n_whole, 20);
}

}  // namespace
}  // namespace fathom
