// Goal: on a model, an agent's conversation of many turns computes each token once, in both
// schedules, with the tokens and log-probabilities of a prompt that is computed alone; a session
// that was dropped costs the block tail and the replay more. Method: turns through an engine until
// the context is full, some of them repeated in a new engine without anything kept. T12 in the
// quick tests, the trained model, whose turns fill the context that it was trained on, in the long
// ones.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "engine/engine.h"
#include "engine/load.h"
#include "engine/model_executor.h"
#include "ops/backends.h"

namespace fathom {
namespace {

constexpr int64_t kTtl = 1'000'000;
constexpr int64_t kRows = 256;

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  Usage usage;
};

class AgentTurns : public testing::TestWithParam<Schedule> {
 protected:
  // An engine with pools of its own.
  struct Served {
    std::unique_ptr<Runner> runner;
    std::unique_ptr<ModelExecutor> executor;
    std::unique_ptr<Engine> engine;
  };

  void SetUp() override {
    auto loaded = load_model(std::string(FATHOM_SOURCE_DIR) + "/" + FATHOM_TURNS_MODEL,
                             {.need_tokenizer = false});
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
    ops_ = std::move(*make_backend({}));
  }

  Served serve(int64_t session_bytes) {
    Served served;
    served.runner = std::move(*Runner::make(
        *loaded_.model, *ops_,
        {.schedule = GetParam(), .context = FATHOM_TURNS_CONTEXT, .max_rows = kRows}));
    served.executor = std::make_unique<ModelExecutor>(*served.runner, 0);
    served.engine = std::make_unique<Engine>(
        *served.executor, EngineOptions{.sessions = {.max_bytes = session_bytes, .ttl_us = kTtl}});
    return served;
  }

  Answer run(Engine& engine, const Request& request) {
    EXPECT_TRUE(engine.submit(request));
    Answer answer;
    bool more = true;
    while (more) {
      more = engine.tick(++now_us_);
      for (const Output& output : engine.take_outputs(100)) {
        for (const SampledToken& token : output.tokens) {
          answer.ids.push_back(token.id);
          answer.logprobs.push_back(token.logprob);
        }
        answer.usage = output.usage;
      }
    }
    engine.check();
    return answer;
  }

  void expect_as_alone(const Answer& answer, const Request& request) {
    const Served alone = serve(0);
    const Answer want = run(*alone.engine, request);
    EXPECT_EQ(want.usage.cached_tokens, 0);
    EXPECT_EQ(answer.ids, want.ids);
    EXPECT_EQ(answer.logprobs, want.logprobs);
  }

  std::vector<int32_t> fresh(int64_t n) {
    const auto vocab = static_cast<uint32_t>(loaded_.model->config().text_config.vocab_size);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(random_() % vocab));
    return ids;
  }

  LoadedModel loaded_;
  std::unique_ptr<Ops> ops_;
  std::mt19937 random_{17};
  int64_t now_us_ = 0;
};

TEST_P(AgentTurns, ComputeEachTokenOnceAndAsMuchAsAHitNeedsWhenDropped) {
  const Served served = serve(int64_t{1} << 30);
  std::vector<int32_t> prompt = fresh(12);
  int64_t n_computed = 0;
  int64_t known = 0;
  const auto turn = [&](int number) {
    Request request = {.prompt = prompt, .max_tokens = 6 + number % 5};
    request.sampling = {.temperature = 0.8, .seed = static_cast<uint64_t>(number)};
    const Answer answer = run(*served.engine, request);
    if (number % FATHOM_TURNS_ALONE == FATHOM_TURNS_ALONE - 1) expect_as_alone(answer, request);
    prompt.insert(prompt.end(), answer.ids.begin(), answer.ids.end());
    return answer.usage;
  };
  for (int number = 0; number < FATHOM_TURNS; ++number) {
    const Usage usage = turn(number);
    EXPECT_EQ(usage.cached_tokens, known);
    n_computed += usage.computed_tokens + usage.replayed_tokens;
    known = static_cast<int64_t>(prompt.size()) - 1;
    EXPECT_EQ(usage.computed_tokens, known - usage.cached_tokens);
    const std::vector<int32_t> more = fresh(9 + number % 7);
    prompt.insert(prompt.end(), more.begin(), more.end());
  }
  EXPECT_EQ(n_computed, known);  // of known new tokens: 1.00, where 1.05 is allowed

  now_us_ += kTtl;
  const auto new_tokens = static_cast<int64_t>(prompt.size()) - known;
  const Usage usage = turn(FATHOM_TURNS_ALONE - 1);
  const int64_t n_answer = static_cast<int64_t>(prompt.size()) - known - new_tokens;
  EXPECT_EQ(usage.cached_tokens, known / kBlockTokens * kBlockTokens);
  EXPECT_EQ(usage.computed_tokens, known % kBlockTokens + new_tokens + n_answer - 1);
  EXPECT_EQ(usage.replayed_tokens,
            std::min(usage.cached_tokens, served.runner->replay_rows(RestoreGrade::kExact)));
  std::printf("tokens %zu: computed while kept %ld of %ld new; dropped: %ld and %ld replayed\n",
              prompt.size(), static_cast<long>(n_computed), static_cast<long>(known),
              static_cast<long>(usage.computed_tokens), static_cast<long>(usage.replayed_tokens));
}

INSTANTIATE_TEST_SUITE_P(Schedules, AgentTurns,
                         testing::Values(Schedule::kExact, Schedule::kDeploy),
                         [](const auto& info) {
                           return std::string(info.param == Schedule::kExact ? "Exact" : "Deploy") +
                                  FATHOM_TURNS_NAME;
                         });

}  // namespace
}  // namespace fathom
