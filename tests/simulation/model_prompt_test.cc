// Goal: log probabilities of a prompt are those of the exact schedule, whatever else the engine
// computes, whatever is cached, and in both schedules. Method: the shipped model; every logit of a
// prompt from one step of a runner beside what the engine says of it, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/engine.h"
#include "engine/load.h"
#include "engine/model_executor.h"
#include "ops/backends.h"

namespace fathom {
namespace {

constexpr int64_t kContext = 320;

class ModelPrompt : public testing::TestWithParam<Schedule> {
 protected:
  void SetUp() override {
    auto loaded = load_model(std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m",
                             {.need_tokenizer = false});
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
    ops_ = std::move(*make_backend({}));
    std::mt19937 random(7);
    const auto vocab = static_cast<uint32_t>(loaded_.model->config().text_config.vocab_size);
    for (int i = 0; i < 250; ++i) document_.push_back(static_cast<int32_t>(random() % vocab));
  }

  std::unique_ptr<Runner> runner(const RunnerOptions& options) {
    auto made = Runner::make(*loaded_.model, *ops_, options);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }

  Request request(int64_t n, int64_t max_tokens = 3) const {
    Request request = {.tenant = static_cast<TenantId>(1), .max_tokens = max_tokens};
    request.prompt.assign(document_.begin(), document_.begin() + n);
    request.sampling = {.temperature = 0.8, .seed = 3};
    return request;
  }
  Request logged(int64_t n, int64_t n_top) const {
    Request asked = request(n);
    asked.prompt_logprobs = n_top;
    asked.restore = RestoreGrade::kBounded;  // which is never needed
    return asked;
  }

  struct Alone {
    std::vector<PromptLogprob> prompt;
    std::vector<SampledToken> answer;
  };
  Alone alone(const Request& request) {
    const auto r = runner({.schedule = Schedule::kExact,
                           .context = kContext,
                           .max_rows = kContext,
                           .max_logit_rows = kContext});
    Sequence sequence = *r->open();
    EXPECT_TRUE(r->append(sequence, request.prompt));
    const auto n = static_cast<int64_t>(request.prompt.size());
    Alone alone;
    while (static_cast<int64_t>(alone.answer.size()) < request.max_tokens) {
      const StepItem item = {
          .sequence = &sequence, .n_rows = sequence.pending(), .want = WantLogits::kAll};
      const Tensor logits = *r->step({&item, 1});
      const auto row = [&](int64_t i) {
        return std::span(logits.as<float>() + i * logits.dim(1),
                         static_cast<size_t>(logits.dim(1)));
      };
      for (int64_t i = 0; alone.answer.empty() && i + 1 < n; ++i) {
        const int32_t id = request.prompt[static_cast<size_t>(i + 1)];
        const auto n_likelier = std::ranges::count_if(
            row(i), [&](float x) { return x > row(i)[static_cast<size_t>(id)]; });
        alone.prompt.push_back(
            {.token = {.id = id, .logprob = log_probability(row(i), id)},
             .rank = n_likelier + 1,
             .top = top_log_probabilities(row(i), request.prompt_logprobs.value_or(0))});
      }
      const std::span<const float> last = row(item.n_rows - 1);
      const auto id = sample(last, sequence.tokens, n, request.sampling);
      alone.answer.push_back({.id = *id, .logprob = log_probability(last, *id), .top = {}});
      EXPECT_TRUE(r->append(sequence, {&alone.answer.back().id, 1}));
    }
    return alone;
  }

  LoadedModel loaded_;
  std::unique_ptr<Ops> ops_;
  std::vector<int32_t> document_;
};

struct Answer {
  std::vector<SampledToken> tokens;
  std::vector<std::vector<PromptLogprob>> prompts;
  Usage usage;
};
using Answers = std::map<std::pair<RequestId, int64_t>, Answer>;

void take(Engine& engine, Answers& answers) {
  for (const Output& output : engine.take_outputs(100)) {
    Answer& answer = answers[{output.request, output.choice}];
    answer.tokens.insert(answer.tokens.end(), output.tokens.begin(), output.tokens.end());
    answer.usage = output.usage;
    if (output.prompt) answer.prompts.push_back(*output.prompt);
  }
}

void run(Engine& engine, Answers& answers) {
  for (int64_t now_us = 0; engine.tick(now_us); now_us += 1000) {
    engine.check();
    take(engine, answers);
    ASSERT_LT(now_us, 2'000'000);
  }
  take(engine, answers);
}

void expect_same(const TokenLogprob& found, const TokenLogprob& want) {
  EXPECT_EQ(found.id, want.id);
  EXPECT_EQ(found.logprob, want.logprob);
}

void expect_same(const std::vector<PromptLogprob>& found, const std::vector<PromptLogprob>& want) {
  ASSERT_EQ(found.size(), want.size());
  for (size_t i = 0; i < found.size(); ++i) {
    expect_same(found[i].token, want[i].token);
    EXPECT_EQ(found[i].rank, want[i].rank);
    ASSERT_EQ(found[i].top.size(), want[i].top.size());
    for (size_t j = 0; j < found[i].top.size(); ++j) expect_same(found[i].top[j], want[i].top[j]);
  }
}

TEST_P(ModelPrompt, EqualsTheLogitsOfTheWholePrompt) {
  const auto r = runner({.schedule = GetParam(),
                         .context = kContext,
                         .n_sequences = 4,
                         .n_blocks = 24,
                         .max_rows = 96,
                         .max_logit_rows = 4 + 24});
  ModelExecutor executor(*r, 0);
  EngineOptions options;
  options.scheduler.min_run_us = 0;
  options.sessions = {.max_bytes = int64_t{1} << 26, .ttl_us = 1'000'000'000};
  Engine engine(executor, options);
  Answers answers;
  std::map<RequestId, Request> asked;
  const auto send = [&](Request request) {
    const auto id = engine.submit(request);
    FATHOM_CHECK(id.has_value());
    asked.emplace(*id, std::move(request));
    return *id;
  };
  const RequestId before =
      send(request(200));  // fills the cache with blocks and states of the prompt
  run(engine, answers);
  send(request(230));  // neighbours of all kinds, more than there are slots
  send(logged(200, 2));
  Request forked = logged(129, 0);
  forked.n_choices = 2;
  send(forked);
  Request urgent = request(100);
  urgent.priority = 9;
  send(urgent);
  send(logged(2, 20));
  send(logged(1, 0));
  run(engine, answers);
  const RequestId after = send(request(200));
  run(engine, answers);
  EXPECT_EQ(engine.load().n_pinned_blocks, 0);
  int64_t n_logged = 0;
  for (const auto& [key, answer] : answers) {
    const Request& request = asked.at(key.first);
    if (!request.prompt_logprobs) {
      EXPECT_TRUE(answer.prompts.empty());
      continue;
    }
    SCOPED_TRACE(request.prompt.size());
    EXPECT_EQ(answer.usage.cached_tokens, 0);
    EXPECT_TRUE(answer.usage.exact);
    ASSERT_EQ(answer.prompts.size(), key.second == 0 ? 1U : 0U);
    Request one = request;
    one.sampling.seed += static_cast<uint64_t>(key.second);
    const Alone want = alone(one);
    ASSERT_EQ(answer.tokens.size(), want.answer.size());
    for (size_t i = 0; i < want.answer.size(); ++i) {
      EXPECT_EQ(answer.tokens[i].id, want.answer[i].id);
      EXPECT_EQ(answer.tokens[i].logprob, want.answer[i].logprob);
    }
    if (key.second != 0) continue;
    n_logged += static_cast<int64_t>(want.prompt.size());
    expect_same(answer.prompts[0], want.prompt);
  }
  EXPECT_EQ(n_logged, 199 + 128 + 1);
  const Answer& first = answers.at({before, 0});
  const Answer& last = answers.at({after, 0});
  EXPECT_GT(last.usage.cached_tokens, 0);
  ASSERT_EQ(first.tokens.size(), last.tokens.size());
  for (size_t i = 0; i < first.tokens.size(); ++i) EXPECT_EQ(first.tokens[i].id, last.tokens[i].id);
}

TEST_P(ModelPrompt, IsBoundedAndRefusedWhereNobodyGivesIt) {
  const auto r = runner({.schedule = GetParam(), .context = kContext, .n_sequences = 2});
  ModelExecutor executor(*r, 0);
  Engine engine(executor, {});
  EXPECT_EQ(engine.submit(logged(10, 0)).error().message,
            "request: prompt_logprobs: wanted an engine that gives them, found another");
  const auto more = runner(
      {.schedule = GetParam(), .context = kContext, .n_sequences = 40, .max_logit_rows = 41});
  ModelExecutor giver(*more, 0);
  Engine other(giver, {});
  Request large = logged(250, 20);
  large.n_choices = 30;
  EXPECT_EQ(other.submit(large).error().message,
            "request: prompt_logprobs: wanted at most 131072 log probabilities of prompt tokens "
            "and likely ones in all choices, found 157500");
  EXPECT_EQ(other.submit(logged(10, 21)).error().message,
            "request: prompt_logprobs: wanted 0 to 20, found 21");
}

INSTANTIATE_TEST_SUITE_P(Schedules, ModelPrompt,
                         testing::Values(Schedule::kExact, Schedule::kDeploy),
                         [](const auto& info) {
                           return info.param == Schedule::kExact ? "Exact" : "Deploy";
                         });

}  // namespace
}  // namespace fathom
