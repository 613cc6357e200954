// Goal: what ends an answer, and that an answer can go on where it stopped. Method: greedy text of
// the shipped model, cut in every way that generate() knows.
#include <gtest/gtest.h>

#include "engine/generate.h"
#include "engine/load.h"
#include "ops/backends.h"

namespace fathom {
namespace {

class Generate : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = load_model(std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m", {});
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
    ops_ = std::move(*make_backend({}));
    runner_ = std::move(*Runner::make(*loaded_.model, *ops_, {.context = 48}));
    const auto ids =
        *loaded_.tokenizer->encode("The server reads the file and", AddedTokens::kIgnore);
    prompt_.assign(ids.begin(), ids.end());
  }

  // The greedy answer to the prompt under some options.
  Generated answer(GenerateOptions options, const GenerateEvents& events = {}) {
    options.sampling.temperature = 0;
    Sequence sequence = *runner_->open();
    EXPECT_TRUE(runner_->append(sequence, prompt_));
    auto result = generate(*runner_, sequence, &*loaded_.tokenizer, options, events);
    runner_->close(sequence);
    return *result;
  }

  LoadedModel loaded_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Runner> runner_;
  std::vector<int32_t> prompt_;
};

TEST_F(Generate, EndsAfterMaxTokens) {
  const Generated all = answer({.max_tokens = 12});
  EXPECT_EQ(all.ids.size(), 12u);
  EXPECT_EQ(all.stop_reason, StopReason::kLength);
  EXPECT_EQ(all.prompt_tokens, static_cast<int64_t>(prompt_.size()));
  const Generated none = answer({.max_tokens = 0});
  EXPECT_TRUE(none.ids.empty());
  const Generated some = answer({.max_tokens = 5});
  EXPECT_TRUE(std::equal(some.ids.begin(), some.ids.end(), all.ids.begin()));
}

TEST_F(Generate, AStopIdIsNotPartOfTheAnswer) {
  const Generated all = answer({.max_tokens = 12});
  const int32_t stop = all.ids[6];
  const auto first = std::find(all.ids.begin(), all.ids.end(), stop);
  const Generated cut = answer({.max_tokens = 12, .stop_ids = {stop}});
  EXPECT_EQ(cut.stop_reason, StopReason::kStop);
  EXPECT_EQ(cut.ids, std::vector<int32_t>(all.ids.begin(), first));
}

TEST_F(Generate, AStopTextEndsTheTextBeforeIt) {
  const Generated all = answer({.max_tokens = 12});
  ASSERT_GT(all.text.size(), 12u);
  const std::string stop = all.text.substr(7, 4);
  const Generated cut = answer({.max_tokens = 12, .stop = {stop}});
  EXPECT_EQ(cut.stop_reason, StopReason::kStop);
  EXPECT_EQ(cut.text, all.text.substr(0, all.text.find(stop)));
}

TEST_F(Generate, EndsWhereTheContextIsFull) {
  const Generated all = answer({.max_tokens = 1000, .stop_ids = {}});
  EXPECT_EQ(all.stop_reason, StopReason::kLength);
  // The last sampled token has no place of its own.
  EXPECT_EQ(all.ids.size() + prompt_.size(), 49u);
}

TEST_F(Generate, CancellingKeepsWhatWasSaid) {
  const Generated all = answer({.max_tokens = 12});
  std::string seen;
  const GenerateEvents events = {.text = [&](std::string_view piece) {
    seen += piece;
    return seen.size() < 8;
  }};
  const Generated cut = answer({.max_tokens = 12}, events);
  EXPECT_EQ(cut.stop_reason, StopReason::kCancelled);
  EXPECT_GE(seen.size(), 8u);
  EXPECT_TRUE(all.text.starts_with(seen));
}

// A sample is keyed by seed and position: an answer that is resumed goes on as if it had not ended.
TEST_F(Generate, AResumedSampleContinuesIdentically) {
  const GenerateOptions options = {.max_tokens = 10, .sampling = {.temperature = 1, .seed = 5}};
  Sequence whole = *runner_->open();
  ASSERT_TRUE(runner_->append(whole, prompt_));
  const Generated all = *generate(*runner_, whole, &*loaded_.tokenizer, options, {});
  runner_->close(whole);

  GenerateOptions half = options;
  half.max_tokens = 5;
  Sequence parts = *runner_->open();
  ASSERT_TRUE(runner_->append(parts, prompt_));
  const Generated first = *generate(*runner_, parts, &*loaded_.tokenizer, half, {});
  const Generated second = *generate(*runner_, parts, &*loaded_.tokenizer, half, {});
  std::vector<int32_t> joined = first.ids;
  joined.insert(joined.end(), second.ids.begin(), second.ids.end());
  EXPECT_EQ(joined, all.ids);
}

}  // namespace
}  // namespace fathom
