// Goal: no interleaving of requests changes an answer, leaks a block or a slot, or breaks a bound.
// Method: random lives of the engine with an executor that hashes the state it is given; the
// program `simulate FIRST COUNT` beside this test goes on with other seeds.
#include "simulation.h"

#include <gtest/gtest.h>

#include "hash_executor.h"

namespace fathom {
namespace {

TEST(Simulation, EveryAnswerEqualsTheOneComputedAlone) {
  SimulationResult all;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const SimulationResult one = simulate(seed);
    ASSERT_EQ(one.failure, "");
    all.add(one);
  }
  // What the seeds are there to meet was met.
  EXPECT_GT(all.n_compared, 10'000);
  EXPECT_GT(all.n_partial, 3000);
  EXPECT_GT(all.n_refused, 3000);
  EXPECT_GT(all.n_bounded, 500);
  EXPECT_GT(all.n_failed, 300);
  EXPECT_GT(all.n_lost, 100);
  EXPECT_GT(all.n_slow, 50);
  EXPECT_GT(all.n_vanished, 300);
  EXPECT_GT(all.n_cached_tokens, 100'000);
  EXPECT_GT(all.n_replayed_tokens, 10'000);
  EXPECT_GT(all.n_parked, 500);
  EXPECT_GT(all.n_dropped, 500);
  EXPECT_GT(all.n_copied, 500);
  EXPECT_GT(all.n_evicted, 2000);
  EXPECT_GT(all.n_overtaken, 50);
  EXPECT_GT(all.n_failed_copies, 100);
  EXPECT_GT(all.n_states_kept, 5000);
  EXPECT_GT(all.n_states_used, 1000);
  EXPECT_GT(all.n_states_evicted, 1000);
  EXPECT_GT(all.n_states_expired, 500);
  EXPECT_GT(all.n_restarts, 200);
  EXPECT_GT(all.n_restores, 600);
  EXPECT_GT(all.n_cut_restores, 80);
  EXPECT_GT(all.n_late_restores, 30);
  EXPECT_GT(all.n_restored_tokens, 50'000);
  EXPECT_GT(all.n_bad, 20);
  EXPECT_GT(all.n_fetches, 400);
  EXPECT_GT(all.n_fetched_states, 40);
  EXPECT_GT(all.n_unfit_states, 1);
  EXPECT_GT(all.n_late_fetches, 20);
}

// The copy of a kept state failed for a task that started over between two steps.
TEST(Simulation, SeedsThatOnceFailed) { EXPECT_EQ(simulate(25766).failure, ""); }

TEST(Simulation, ASeedLivesTheSameLifeAgain) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(simulate(seed).trace, simulate(seed).trace) << seed;
  }
  EXPECT_NE(simulate(0).trace, simulate(1).trace);
}

// The stand-in itself: rows in any chunks, and a step that is given wrong state, show.
class HashCase : public testing::TestWithParam<bool> {
 protected:
  std::vector<int32_t> run(HashExecutor& executor, Sequence& sequence, int64_t chunk, size_t n) {
    const SamplingOptions draw = {.seed = 7};
    std::vector<int32_t> answer;
    while (answer.size() < n) {
      const int64_t rows = std::min(chunk, sequence.pending());
      ExecutorItem item = {.sequence = &sequence, .n_rows = rows};
      if (rows == sequence.pending()) item.draws = {&draw, 1};
      const auto tokens = executor.step({&item, 1});
      if (!tokens || tokens->empty()) continue;
      answer.push_back((*tokens)[0].id);
      EXPECT_TRUE(executor.append(sequence, {&answer.back(), 1}, {}));
    }
    return answer;
  }
  Sequence open(HashExecutor& executor) {
    Sequence sequence = *executor.open();
    for (int i = 0; i < 3; ++i) sequence.blocks.push_back(*executor.blocks().allocate());
    return sequence;
  }
  std::vector<int32_t> prompt() const {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 100; ++i) tokens.push_back(i * 37 % 500);
    return tokens;
  }
};

TEST_P(HashCase, AnyChunkingGivesTheDefinedAnswer) {
  const HashOptions options = {.deploy = GetParam()};
  const auto want = hash_answer(options, prompt(), 20, 7);
  for (const int64_t chunk : {1, 3, 31}) {
    HashExecutor executor(options);
    Sequence sequence = open(executor);
    ASSERT_TRUE(executor.append(sequence, prompt(), {}));
    EXPECT_EQ(run(executor, sequence, chunk, 20), want) << chunk;
  }
}

TEST_P(HashCase, AnExactRestoreGivesTheAnswerAndABoundedOneAnother) {
  const HashOptions options = {.deploy = GetParam()};
  const auto want = hash_answer(options, prompt(), 5, 7);
  for (const RestoreGrade grade : {RestoreGrade::kExact, RestoreGrade::kBounded}) {
    HashExecutor executor(options);
    Sequence first = open(executor);
    ASSERT_TRUE(executor.append(first, prompt(), {}));
    ASSERT_EQ(run(executor, first, 8, 1)[0], want[0]);
    Sequence second = *executor.open();
    const std::vector<int32_t> tokens = prompt();
    const bool exact = executor.restore(second, std::span(tokens).first(64),
                                        std::span(first.blocks).first(1), grade);
    EXPECT_EQ(exact, grade == RestoreGrade::kExact);
    second.blocks.push_back(*executor.blocks().allocate());
    ASSERT_TRUE(executor.append(second, std::span(tokens).subspan(64), {}));
    EXPECT_EQ(run(executor, second, 8, 5) == want, exact);
  }
}

TEST_P(HashCase, OneWrongByteOfABlockChangesTheAnswer) {
  const HashOptions options = {.deploy = GetParam()};
  const auto want = hash_answer(options, prompt(), 1, 7);
  HashExecutor executor(options);
  Sequence sequence = open(executor);
  const std::vector<int32_t> tokens = prompt();
  ASSERT_TRUE(executor.append(sequence, std::span(tokens).first(99), {}));
  run(executor, sequence, 8, 1);
  sequence.tokens.pop_back();
  ASSERT_TRUE(executor.append(sequence, {&tokens.back(), 1}, {}));
  executor.blocks()
      .base()[static_cast<int64_t>(sequence.blocks[0]) * executor.blocks().block_bytes()] ^= 1;
  EXPECT_NE(run(executor, sequence, 8, 1), want);
}

INSTANTIATE_TEST_SUITE_P(Schedules, HashCase, testing::Bool());

}  // namespace
}  // namespace fathom
