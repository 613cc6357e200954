// Goal: the engine on the shipped model gives every request, bit for bit, what a sequence of its
// own gives it, whatever is batched, cached, forked, parked or dropped. Method: requests with
// shared prefixes cut at and beside block edges, few slots and few blocks, both schedules; tokens
// and log-probabilities are compared with a plain loop over a runner.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/engine.h"
#include "engine/load.h"
#include "engine/model_executor.h"
#include "ops/backends.h"

namespace fathom {
namespace {

constexpr int64_t kContext = 320;
constexpr int64_t kAnswer = 6;

class ModelEngine : public testing::TestWithParam<Schedule> {
 protected:
  void SetUp() override {
    auto loaded = load_model(std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m",
                             {.need_tokenizer = false});
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
    auto ops = make_backend({});
    ASSERT_TRUE(ops);
    ops_ = std::move(*ops);
    std::mt19937 random(5);
    const auto vocab = static_cast<uint32_t>(loaded_.model->config().text_config.vocab_size);
    for (int i = 0; i < 300; ++i) document_.push_back(static_cast<int32_t>(random() % vocab));
  }

  std::unique_ptr<Runner> runner(int64_t n_sequences, int64_t n_blocks) {
    auto made = Runner::make(*loaded_.model, *ops_,
                             {.schedule = GetParam(),
                              .context = kContext,
                              .n_sequences = n_sequences,
                              .n_blocks = n_blocks,
                              .max_rows = 160});
    EXPECT_TRUE(made);
    return std::move(*made);
  }

  // The first n tokens of the document and a tail of its own.
  Request request(int64_t n, int32_t tail, uint64_t seed) const {
    Request request = {.tenant = static_cast<TenantId>(1), .max_tokens = kAnswer};
    request.prompt.assign(document_.begin(), document_.begin() + n);
    request.prompt.push_back(tail);
    request.sampling = {.temperature = 0.8, .seed = seed};
    request.top_logprobs = n % 3;
    return request;
  }

  std::vector<SampledToken> alone(const Request& request, uint64_t seed) {
    const auto r = runner(1, 0);
    Sequence sequence = *r->open();
    EXPECT_TRUE(r->append(sequence, request.prompt));
    SamplingOptions sampling = request.sampling;
    sampling.seed = seed;
    std::vector<SampledToken> answer;
    while (static_cast<int64_t>(answer.size()) < request.max_tokens) {
      const auto logits = r->prefill(sequence);
      EXPECT_TRUE(logits);
      const std::span<const float> row(logits->as<float>(), static_cast<size_t>(logits->dim(1)));
      const auto id =
          sample(row, sequence.tokens, static_cast<int64_t>(request.prompt.size()), sampling);
      EXPECT_TRUE(id);
      answer.push_back({.id = *id,
                        .logprob = log_probability(row, *id),
                        .top = top_log_probabilities(row, request.top_logprobs)});
      EXPECT_TRUE(r->append(sequence, {&answer.back().id, 1}));
    }
    return answer;
  }

  LoadedModel loaded_;
  std::unique_ptr<Ops> ops_;
  std::vector<int32_t> document_;
};

struct Answer {
  std::vector<SampledToken> tokens;
  Usage usage;
  EndReason finish = EndReason::kNone;
};
using Answers = std::map<std::pair<RequestId, int64_t>, Answer>;

void take(Engine& engine, Answers& answers) {
  for (const Output& output : engine.take_outputs(100)) {
    Answer& answer = answers[{output.request, output.choice}];
    answer.tokens.insert(answer.tokens.end(), output.tokens.begin(), output.tokens.end());
    answer.usage = output.usage;
    answer.finish = output.finish;
  }
}

TEST_P(ModelEngine, EveryAnswerEqualsTheOneComputedAlone) {
  const auto r = runner(3, 13);
  ModelExecutor executor(*r, 0);
  EngineOptions options;
  options.scheduler.min_run_us = 0;
  Engine engine(executor, options);
  std::map<RequestId, Request> sent;
  const auto send = [&](Request request) {
    const auto id = engine.submit(request);
    ASSERT_TRUE(id) << id.error().message;
    sent.emplace(*id, std::move(request));
  };
  send(request(200, 7, 1));
  send(request(200, 7, 2));
  for (const int64_t n : {63, 64, 127, 128, 150, 191}) send(request(n, 9, 3));
  Request forked = request(130, 11, 50);
  forked.n_choices = 3;
  send(forked);
  Answers answers;
  int64_t n_ticks = 0;
  while (engine.tick(n_ticks * 1000)) {
    if (n_ticks % 4 == 3 && n_ticks < 24) {  // somebody more urgent comes again and again
      Request urgent = request(100 + n_ticks, 13, 4);
      urgent.priority = 9;
      send(urgent);
    }
    engine.check();
    take(engine, answers);
    ASSERT_LT(++n_ticks, 2000);
  }
  take(engine, answers);
  EXPECT_EQ(answers.size(), sent.size() + 2);
  EXPECT_GT(engine.counters().n_parked + engine.counters().n_dropped, 0);
  EXPECT_GT(engine.cache().counters().copied, 0);
  EXPECT_EQ(engine.load().n_pinned_blocks, 0);
  EXPECT_EQ(engine.load().n_slots, 0);
  int64_t n_cached = 0;
  for (const auto& [key, answer] : answers) {
    const Request& request = sent.at(key.first);
    const auto want = alone(request, request.sampling.seed + static_cast<uint64_t>(key.second));
    ASSERT_EQ(answer.tokens.size(), want.size());
    EXPECT_EQ(answer.finish, EndReason::kLength);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(answer.tokens[i].id, want[i].id);
      EXPECT_EQ(answer.tokens[i].logprob, want[i].logprob);
      ASSERT_EQ(answer.tokens[i].top.size(), static_cast<size_t>(request.top_logprobs));
      for (size_t j = 0; j < want[i].top.size(); ++j) {
        EXPECT_EQ(answer.tokens[i].top[j].id, want[i].top[j].id);
        EXPECT_EQ(answer.tokens[i].top[j].logprob, want[i].top[j].logprob);
      }
    }
    n_cached += answer.usage.cached_tokens;
  }
  EXPECT_GT(n_cached, 500);
  RecordProperty("parked", static_cast<int>(engine.counters().n_parked));
  RecordProperty("dropped", static_cast<int>(engine.counters().n_dropped));
  RecordProperty("cached", static_cast<int>(n_cached));
}

// A bounded request computes one window again; what it leaves in the cache is for its like alone.
TEST_P(ModelEngine, BoundedStateIsReadByBoundedRequestsAlone) {
  const auto r = runner(1, 10);
  ModelExecutor executor(*r, 0);
  Engine engine(executor, {});
  const auto run = [&](Request request) {
    const auto id = engine.submit(std::move(request));
    EXPECT_TRUE(id);
    Answers answers;
    while (engine.tick(0)) take(engine, answers);
    take(engine, answers);
    return answers.at({*id, 0});
  };
  const int64_t window = loaded_.model->config().text_config.sliding_window;
  run(request(130, 7, 1));  // leaves two exact blocks
  Request bounded = request(260, 7, 1);
  bounded.restore = RestoreGrade::kBounded;
  const Answer first = run(bounded);
  EXPECT_EQ(first.usage.cached_tokens, 128);
  EXPECT_EQ(first.usage.replayed_tokens, std::min<int64_t>(window, 128));
  const bool exact = window >= 128;
  EXPECT_EQ(first.usage.exact, exact);
  EXPECT_EQ(run(bounded).usage.cached_tokens, 256);
  const Answer last = run(request(260, 7, 1));
  EXPECT_EQ(last.usage.cached_tokens, exact ? 256 : 128);
  EXPECT_TRUE(last.usage.exact);
}

INSTANTIATE_TEST_SUITE_P(Schedules, ModelEngine,
                         testing::Values(Schedule::kExact, Schedule::kDeploy),
                         [](const auto& info) {
                           return std::string(info.param == Schedule::kExact ? "Exact" : "Deploy");
                         });

}  // namespace
}  // namespace fathom
