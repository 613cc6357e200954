// Goal: a conversation computes each token once while its states are kept, and as much more as a
// hit needs once they are not; continuations that part, dropped reasoning, grades and cancelled
// requests start where they may. Method: the engine with the hashing executor, whose every answer
// is compared with the defined one.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine.h"
#include "hash_executor.h"

namespace fathom {
namespace {

constexpr int64_t kTtl = 1'000'000;
constexpr int64_t kLongContext = 4096;

struct Answer {
  std::vector<int32_t> ids;
  Usage usage;
};

class Sessions : public testing::TestWithParam<bool> {
 protected:
  Sessions()
      : hash_({.deploy = GetParam(), .window = 7, .context = kLongContext, .n_blocks = 80}),
        executor_(hash_),
        engine_(executor_, {.sessions = {.max_bytes = 1 << 20, .ttl_us = kTtl}}) {}

  static Request request(std::vector<int32_t> prompt, int64_t n_answer) {
    Request made = {.prompt = std::move(prompt), .max_tokens = n_answer};
    made.sampling.seed = 3;
    return made;
  }

  Answer run(const Request& request) {
    const auto id = engine_.submit(request);
    EXPECT_TRUE(id);
    Answer answer;
    bool more = true;
    while (more) {
      more = engine_.tick(++now_us_);
      engine_.check();
      for (const Output& output : engine_.take_outputs(100)) {
        for (const SampledToken& token : output.tokens) answer.ids.push_back(token.id);
        answer.usage = output.usage;
      }
    }
    if (request.restore == RestoreGrade::kExact) {
      EXPECT_EQ(answer.ids, hash_answer(hash_, request.prompt, request.max_tokens, 3));
    }
    EXPECT_EQ(engine_.load().n_pinned_blocks, 0);
    EXPECT_EQ(engine_.load().n_slots, 0);
    return answer;
  }

  std::vector<int32_t> fresh(int64_t n) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < n; ++i) ids.push_back(++last_id_ % 900);
    return ids;
  }
  static void append(std::vector<int32_t>& to, const std::vector<int32_t>& ids) {
    to.insert(to.end(), ids.begin(), ids.end());
  }

  int64_t exact_replay() const { return executor_.limits().exact_replay_rows; }

  const HashOptions hash_;
  HashExecutor executor_;
  Engine engine_;
  int64_t now_us_ = 0;
  int32_t last_id_ = 0;
};

TEST_P(Sessions, TwoHundredTurnsComputeEachTokenOnce) {
  std::vector<int32_t> prompt = fresh(30);
  int64_t n_computed = 0;
  int64_t known = 0;
  for (int turn = 0; turn < 200; ++turn) {
    const Answer answer = run(request(prompt, 7 + turn % 5));
    const auto n = static_cast<int64_t>(prompt.size());
    EXPECT_EQ(answer.usage.cached_tokens, known) << turn;
    EXPECT_EQ(answer.usage.replayed_tokens, 0);
    n_computed += answer.usage.computed_tokens;
    append(prompt, answer.ids);
    known = static_cast<int64_t>(prompt.size()) - 1;  // the last token of an answer is never fed
    EXPECT_EQ(answer.usage.computed_tokens, known - answer.usage.cached_tokens) << n;
    append(prompt, fresh(8 + turn % 6));
  }
  EXPECT_GT(known, kLongContext * 9 / 10);
  EXPECT_EQ(n_computed, known);
}

TEST_P(Sessions, ADroppedSessionComputesTheBlockTailAndTheReplayMore) {
  std::vector<int32_t> prompt = fresh(300);
  append(prompt, run(request(prompt, 20)).ids);
  const auto known = static_cast<int64_t>(prompt.size()) - 1;
  append(prompt, fresh(9));
  now_us_ += kTtl;
  const int64_t n_skipped = engine_.counters().cached_tokens;
  const Answer answer = run(request(prompt, 5));
  EXPECT_EQ(engine_.sessions().counters().expired, 2);
  EXPECT_EQ(answer.usage.skipped_tokens(),
            std::max<int64_t>(known / kBlockTokens * kBlockTokens - exact_replay(), 0));
  EXPECT_EQ(engine_.counters().cached_tokens - n_skipped, answer.usage.skipped_tokens());
  EXPECT_EQ(answer.usage.cached_tokens, known / kBlockTokens * kBlockTokens);
  EXPECT_EQ(answer.usage.replayed_tokens, exact_replay());
  EXPECT_EQ(answer.usage.computed_tokens, 10 + known % kBlockTokens + 4);
}

// The next prompt has another last token in front of the answer, and only the answer's end.
TEST_P(Sessions, AnAnswerThatComesBackWithoutItsReasoningStartsAtItsPrompt) {
  std::vector<int32_t> prompt = fresh(100);
  for (int turn = 0; turn < 20; ++turn) {
    const Answer answer = run(request(prompt, 20));
    const auto n = static_cast<int64_t>(prompt.size());
    prompt.back() = 998;
    prompt.insert(prompt.end(), answer.ids.begin() + 12, answer.ids.end());
    append(prompt, fresh(10));
    const Answer next = run(request(prompt, 1));
    EXPECT_EQ(next.usage.cached_tokens, n - 1);
    EXPECT_EQ(next.usage.replayed_tokens, 0);
    // The same once more: all but the last token is there.
    EXPECT_EQ(run(request(prompt, 1)).usage.computed_tokens, 1);
  }
}

TEST_P(Sessions, ContinuationsOfOneTurnPart) {
  std::vector<int32_t> prompt = fresh(90);
  append(prompt, run(request(prompt, 11)).ids);
  for (int i = 0; i < 4; ++i) {
    std::vector<int32_t> other = prompt;
    append(other, fresh(1 + i * 30));
    const Answer answer = run(request(other, 9));
    EXPECT_EQ(answer.usage.cached_tokens, i == 0 ? 100 : 101);  // the first one's prompt
    append(other, answer.ids);
    append(other, fresh(3));
    EXPECT_EQ(run(request(other, 2)).usage.replayed_tokens, 0);
  }
}

TEST_P(Sessions, BoundedStatesAreForBoundedRequestsAlone) {
  std::vector<int32_t> prompt = fresh(200);
  run(request(prompt, 1));
  now_us_ += kTtl;  // blocks alone are left
  Request bounded = request(prompt, 10);
  bounded.restore = RestoreGrade::kBounded;
  const Answer first = run(bounded);
  EXPECT_FALSE(first.usage.exact);
  append(prompt, first.ids);
  append(prompt, fresh(5));
  bounded.prompt = prompt;
  const Answer second = run(bounded);
  EXPECT_FALSE(second.usage.exact);
  EXPECT_EQ(second.usage.cached_tokens, 209);
  EXPECT_EQ(second.usage.replayed_tokens, 0);
  const Answer exact = run(request(prompt, 10));
  EXPECT_TRUE(exact.usage.exact);
  EXPECT_EQ(exact.usage.cached_tokens, 192);
  EXPECT_EQ(exact.usage.replayed_tokens, exact_replay());
}

TEST_P(Sessions, AnotherTenantStartsFromNothing) {
  std::vector<int32_t> prompt = fresh(40);
  run(request(prompt, 10));
  append(prompt, fresh(10));
  Request other = request(prompt, 2);
  other.tenant_salt = "another";
  EXPECT_EQ(run(other).usage.cached_tokens, 0);
}

TEST_P(Sessions, ACancelledRequestLeavesItsState) {
  std::vector<int32_t> prompt = fresh(300);
  const auto id = engine_.submit(request(prompt, 50));
  ASSERT_TRUE(id);
  for (int i = 0; i < 5; ++i) engine_.tick(++now_us_);  // 160 rows
  engine_.cancel(*id);
  EXPECT_FALSE(engine_.tick(++now_us_));
  engine_.take_outputs(10);
  EXPECT_EQ(run(request(prompt, 5)).usage.cached_tokens, 160);
}

TEST_P(Sessions, AStateIsOfUseWhileItsBlocksAreCached) {
  std::vector<int32_t> prompt = fresh(300);
  append(prompt, run(request(prompt, 20)).ids);
  for (int i = 0; i < 2; ++i) run(request(fresh(4000), 1));  // all of the pool, twice
  EXPECT_GT(engine_.cache().counters().evicted, 0);
  append(prompt, fresh(5));
  const Answer answer = run(request(prompt, 5));
  EXPECT_EQ(answer.usage.cached_tokens % kBlockTokens, 0);
  EXPECT_LT(answer.usage.cached_tokens, 319);
}

TEST_P(Sessions, AClearedCacheForgetsStatesAndBlocksOfTheTenantThatIsNamed) {
  const std::vector<int32_t> prompt = fresh(200);
  Request mine = request(prompt, 3);
  mine.tenant = TenantId{1};
  mine.tenant_salt = "mine";
  Request other = mine;
  other.tenant = TenantId{2};
  other.tenant_salt = "other";
  run(mine);
  run(other);
  const auto clear = [&](const CacheOrder& order) {
    CacheReport told;
    EXPECT_TRUE(engine_.ask(order, [&](const CacheReport& report) { told = report; }));
    engine_.tick(++now_us_);
    return told;
  };
  const CacheReport report = clear({.clear = true, .tenant = TenantId{1}});
  EXPECT_EQ(report.n_cleared, 3);
  EXPECT_EQ(report.n_states_cleared, 2);
  EXPECT_EQ(run(other).usage.cached_tokens, 199);
  EXPECT_EQ(run(mine).usage.cached_tokens, 0);
  EXPECT_EQ(clear({.clear = true}).status.load.session_bytes, 0);
  EXPECT_EQ(run(other).usage.cached_tokens, 0);
}

// One computes, and the others start where it has come to.
TEST_P(Sessions, PromptsThatArriveTogetherAreComputedOnce) {
  const std::vector<int32_t> prompt = fresh(1000);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine_.submit(request(prompt, 4)));
  int64_t n_computed = 0;
  bool more = true;
  while (more) {
    more = engine_.tick(++now_us_);
    engine_.check();
    for (const Output& output : engine_.take_outputs(100)) {
      if (output.finish == EndReason::kNone) continue;
      n_computed += output.usage.computed_tokens;
      EXPECT_EQ(output.usage.cached_tokens + output.usage.computed_tokens, 1000 + 4 - 1);
    }
  }
  EXPECT_EQ(engine_.counters().n_overtaken, 3);
  EXPECT_LT(n_computed, 1000 + 3 * kBlockTokens);
  EXPECT_EQ(run(request(prompt, 4)).usage.cached_tokens, 999);
}

INSTANTIATE_TEST_SUITE_P(Schedules, Sessions, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "Deploy" : "Exact");
});

}  // namespace
}  // namespace fathom
