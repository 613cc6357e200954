// Goal: tokens and logits of a request do not depend on what was cached, cancelled, evicted or
// served beside it. Method: each prompt alone in a new engine gives its tokens and, bit for bit,
// all logits; then the same prompts after a hit at a block edge, one off, at odd positions and
// inside the last window, with neighbours, after a cancellation and after eviction, in both
// schedules. T12 in the quick tests, the trained model in the long ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/hash.h"
#include "engine/engine.h"
#include "engine/load.h"
#include "engine/model_executor.h"
#include "ops/backends.h"

namespace fathom {
namespace {

constexpr int64_t kContext = 512;
constexpr int64_t kAnswer = 5;

// What the logits of a request follow: where its prompt ended (the deploy schedule depends on it)
// and all tokens so far.
using Place = std::pair<int64_t, std::vector<int32_t>>;

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  Usage usage;
};

class PrefixReuse : public testing::TestWithParam<Schedule> {
 protected:
  void SetUp() override {
    auto loaded = load_model(std::string(FATHOM_SOURCE_DIR) + "/" + FATHOM_PREFIX_MODEL,
                             {.need_tokenizer = false});
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
    ops_ = std::move(*make_backend({}));
    std::mt19937 random(11);
    const TextConfig& text = loaded_.model->config().text_config;
    for (int i = 0; i < 450; ++i) {
      document_.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(text.vocab_size)));
    }
    window_ = text.sliding_window;
  }

  Request request(int64_t n) const {
    Request made = {.max_tokens = kAnswer};
    made.prompt.assign(document_.begin(), document_.begin() + n);
    made.sampling = {.temperature = 0.9, .seed = static_cast<uint64_t>(n)};
    return made;
  }

  // An engine with pools of its own, whose logits are held against those seen before.
  struct Served {
    std::unique_ptr<Runner> runner;
    std::unique_ptr<ModelExecutor> executor;
    std::unique_ptr<Engine> engine;
  };
  Served serve(int64_t n_sequences, int64_t n_blocks) {
    Served served;
    served.runner = std::move(*Runner::make(*loaded_.model, *ops_,
                                            {.schedule = GetParam(),
                                             .context = kContext,
                                             .n_sequences = n_sequences,
                                             .n_blocks = n_blocks,
                                             .max_rows = 96}));
    served.executor = std::make_unique<ModelExecutor>(*served.runner, 0);
    served.executor->watch([this](const ExecutorItem& item, std::span<const float> logits) {
      const Sha256Digest digest = sha256(std::as_bytes(logits));
      const auto [place, added] =
          logits_.emplace(Place(item.prompt_tokens, item.sequence->tokens), digest);
      if (added) return;
      ++n_compared_;
      EXPECT_EQ(place->second, digest) << "after " << item.sequence->tokens.size() << " tokens";
    });
    served.engine = std::make_unique<Engine>(*served.executor, EngineOptions{});
    return served;
  }

  std::map<RequestId, Answer> finish(Engine& engine) {
    std::map<RequestId, Answer> answers;
    bool more = true;
    while (more) {
      more = engine.tick(0);
      engine.check();
      for (const Output& output : engine.take_outputs(100)) {
        Answer& answer = answers[output.request];
        for (const SampledToken& token : output.tokens) {
          answer.ids.push_back(token.id);
          answer.logprobs.push_back(token.logprob);
        }
        if (output.finish == EndReason::kLength) answer.usage = output.usage;
      }
    }
    EXPECT_EQ(engine.load().n_pinned_blocks, 0);
    return answers;
  }

  Answer run(Engine& engine, const Request& request) {
    const auto id = engine.submit(request);
    EXPECT_TRUE(id);
    return finish(engine).at(*id);
  }

  const Answer& alone(int64_t n) {
    const auto found = alone_.find(n);
    if (found != alone_.end()) return found->second;
    const Served served = serve(1, 0);
    const Answer answer = run(*served.engine, request(n));
    EXPECT_EQ(answer.usage.cached_tokens, 0);
    return alone_.emplace(n, answer).first->second;
  }

  void expect_as_alone(const Answer& answer, int64_t n, int64_t cached_tokens) {
    SCOPED_TRACE("prompt of " + std::to_string(n));
    const Answer& want = alone(n);
    EXPECT_EQ(answer.ids, want.ids);
    EXPECT_EQ(answer.logprobs, want.logprobs);
    EXPECT_TRUE(answer.usage.exact);
    EXPECT_EQ(answer.usage.cached_tokens, cached_tokens);
  }

  // Whole blocks of a prompt, at least one token left to compute.
  static int64_t blocks_before(int64_t n) { return (n - 1) / kBlockTokens * kBlockTokens; }

  // Around block edges, odd, and so that the hit ends inside the last window.
  std::vector<int64_t> lengths() const {
    return {63, 64, 65, 127, 128, 129, 131, 191, 193, 257, 256 + window_ - 1, 256 + window_, 301};
  }

  LoadedModel loaded_;
  std::unique_ptr<Ops> ops_;
  std::vector<int32_t> document_;
  int64_t window_ = 0;
  std::map<Place, Sha256Digest> logits_;
  std::map<int64_t, Answer> alone_;
  int64_t n_compared_ = 0;
};

TEST_P(PrefixReuse, AHitAtAnyPositionGivesTheSameTokensAndLogits) {
  for (const int64_t n : lengths()) alone(n);
  const Served served = serve(1, 40);
  run(*served.engine, request(400));
  for (const int64_t n : lengths()) {
    expect_as_alone(run(*served.engine, request(n)), n, blocks_before(n));
  }
  EXPECT_EQ(n_compared_, static_cast<int64_t>(lengths().size()) * kAnswer);
}

TEST_P(PrefixReuse, NeighboursDoNotShow) {
  for (const int64_t n : {64, 129, 191, 301}) alone(n);
  for (const bool warm : {false, true}) {
    const Served served = serve(4, 60);
    if (warm) run(*served.engine, request(400));
    std::map<RequestId, int64_t> sent;
    for (const int64_t n : {301, 64, 191, 129, 64, 301, 129, 191}) {
      const auto id = served.engine->submit(request(n));
      ASSERT_TRUE(id);
      sent[*id] = n;
    }
    const auto answers = finish(*served.engine);
    for (const auto& [id, n] : sent) {
      const Answer& answer = answers.at(id);
      expect_as_alone(answer, n, warm ? blocks_before(n) : answer.usage.cached_tokens);
    }
  }
  EXPECT_GE(n_compared_, 16 * kAnswer);
}

TEST_P(PrefixReuse, ACancelledRequestLeavesItsPrefixAndNothingElse) {
  alone(301);
  for (const int n_ticks : {1, 2, 3, 5}) {
    const Served served = serve(1, 20);
    const auto id = served.engine->submit(request(301));
    ASSERT_TRUE(id);
    for (int i = 0; i < n_ticks; ++i) served.engine->tick(0);
    served.engine->cancel(*id);
    finish(*served.engine);
    const int64_t n_done = std::min<int64_t>(301, n_ticks * 96);
    expect_as_alone(run(*served.engine, request(301)), 301, n_done / kBlockTokens * kBlockTokens);
  }
}

TEST_P(PrefixReuse, AnEvictedPrefixIsComputedAgain) {
  alone(193);
  const Served served = serve(1, 8);
  run(*served.engine, request(193));
  Request other = request(400);
  std::reverse(other.prompt.begin(), other.prompt.end());
  run(*served.engine, other);
  EXPECT_GT(served.engine->cache().counters().evicted, 0);
  const Answer again = run(*served.engine, request(193));
  EXPECT_LT(again.usage.cached_tokens, 192);
  expect_as_alone(again, 193, again.usage.cached_tokens);
  expect_as_alone(run(*served.engine, request(193)), 193, 192);
}

INSTANTIATE_TEST_SUITE_P(Schedules, PrefixReuse,
                         testing::Values(Schedule::kExact, Schedule::kDeploy),
                         [](const auto& info) {
                           return std::string(info.param == Schedule::kExact ? "Exact" : "Deploy") +
                                  FATHOM_PREFIX_NAME;
                         });

}  // namespace
}  // namespace fathom
