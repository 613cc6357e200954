// Goal: generation draws what the tokenizer knows, times its steps alone and refuses what it
// cannot. Method: random models of the small plan, with 256 and with 288 rows of vocabulary.
#include "engine/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/thread_pool.h"
#include "engine/load.h"
#include "model/plans.h"
#include "model/synth.h"
#include "ops/backends.h"

namespace fathom {
namespace {

using testing::HasSubstr;

// The 256 bytes, and nothing else.
std::string byte_tokenizer() {
  std::string vocab;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool own = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const int code = own ? byte : next++;
    std::string symbol;
    if (code < 128) {
      symbol = std::string(code == '"' || code == '\\' ? 1 : 0, '\\') + static_cast<char>(code);
    } else {
      symbol = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
    }
    vocab += (byte == 0 ? "\"" : ", \"") + symbol + "\": " + std::to_string(byte);
  }
  return R"({"added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
    "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {)" +
         vocab + R"(}, "merges": []}})";
}

class GenerateTest : public testing::Test {
 protected:
  void open(int64_t vocab_size, int64_t context) {
    ModelConfig config = *named_plan("t12");
    config.text_config.vocab_size = vocab_size;
    config.text_config.engram_compressed_vocab_size = vocab_size;
    folder_ = testing::TempDir() + "/fathom_generate_" + std::to_string(::getpid());
    std::filesystem::remove_all(folder_);
    ThreadPool pool(1);
    ASSERT_TRUE(write_random_model(folder_, config, {.seed = 3}, pool));
    auto loaded = load_model(folder_, {.need_tokenizer = false});
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
    ops_ = *make_backend({.kind = BackendKind::kCpu, .n_threads = 1});
    runner_ = *Runner::make(*loaded_.model, *ops_, {.context = context});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<Generated> run(const std::vector<int32_t>& prompt, const GenerateOptions& options,
                        const Tokenizer* tokenizer = nullptr, const GenerateEvents& events = {}) {
    FATHOM_ASSIGN_OR_RETURN(Sequence sequence, runner_->open());
    FATHOM_RETURN_IF_ERROR(runner_->append(sequence, prompt));
    auto result = generate(*runner_, sequence, tokenizer, options, events);
    runner_->close(sequence);
    return result;
  }

  std::string folder_;
  LoadedModel loaded_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Runner> runner_;
};

TEST_F(GenerateTest, DrawsOnlyWhatTheTokenizerKnowsWhateverThePromptHolds) {
  open(288, 64);
  const auto tokenizer = Tokenizer::from_json(byte_tokenizer(), "bytes.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const GenerateOptions options = {
      .max_tokens = 20,
      .sampling = {
          .temperature = 100, .repetition_penalty = 1.5, .presence_penalty = 0.5, .seed = 11}};
  const auto result = run({1, 287, 256, 270, 3}, options, &*tokenizer);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->ids.size(), 20u);
  EXPECT_THAT(result->ids, testing::Each(testing::Lt(256)));
}

TEST_F(GenerateTest, StopTextsWithoutATokenizerAreRefused) {
  open(256, 64);
  const auto result = run({1, 2}, {.max_tokens = 1, .stop = {"x"}});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(result.error().message, HasSubstr("stop: wanted a model with tokenizer.json"));
}

// With a token a byte, the ids behind a stop string are exactly those of the text before it.
TEST_F(GenerateTest, IdsEndWhereTheTextEndsBeforeAStopString) {
  open(256, 64);
  const auto tokenizer = Tokenizer::from_json(byte_tokenizer(), "bytes.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const GenerateOptions options = {.max_tokens = 40, .sampling = {.temperature = 1, .seed = 5}};
  const auto whole = run({1, 2}, options, &*tokenizer);
  ASSERT_TRUE(whole) << whole.error().message;
  for (size_t at = 0; at < whole->text.size(); ++at) {
    if ((static_cast<unsigned char>(whole->text[at]) & 0xC0) == 0x80) continue;  // in a character
    GenerateOptions cut_options = options;
    cut_options.stop = {whole->text.substr(at, 6)};
    const auto cut = run({1, 2}, cut_options, &*tokenizer);
    ASSERT_TRUE(cut) << cut.error().message;
    EXPECT_EQ(cut->text, whole->text.substr(0, whole->text.find(cut_options.stop[0])));
    EXPECT_EQ(*tokenizer->decode(cut->ids), cut->text);
    EXPECT_TRUE(std::equal(cut->ids.begin(), cut->ids.end(), whole->ids.begin()));
  }
}

// The clock goes on by one with each reading: two readings around each step.
TEST_F(GenerateTest, TimeIsThatOfTheStepsAfterThePrefill) {
  open(256, 64);
  double clock = 0;
  const GenerateEvents events = {.seconds = [&] { return clock++; }};
  const GenerateOptions options = {.max_tokens = 1, .sampling = {.temperature = 0}};
  const auto one = run({1, 2, 3}, options, nullptr, events);
  EXPECT_EQ(one->ids.size(), 1u);
  EXPECT_EQ(one->decode_steps, 0);
  EXPECT_EQ(one->decode_seconds, 0);
  EXPECT_EQ(one->prefill_seconds, 1);

  const auto five =
      run({1, 2, 3}, {.max_tokens = 5, .sampling = {.temperature = 0}}, nullptr, events);
  EXPECT_EQ(five->ids.size(), 5u);
  EXPECT_EQ(five->decode_steps, 4);
  EXPECT_EQ(five->decode_seconds, 4);
}

TEST_F(GenerateTest, AContextBeyondTheBoundOfPositionsIsRefusedWithBothNumbers) {
  open(256, 8);
  for (const int64_t context : {int64_t{0}, kPositionsMax + 1, int64_t{1} << 40}) {
    const auto runner = Runner::make(*loaded_.model, *ops_, {.context = context});
    ASSERT_FALSE(runner);
    EXPECT_EQ(runner.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(runner.error().message,
              "context: wanted 1 to 2097152 tokens, found " + std::to_string(context));
  }
}

// A tokenizer that lacks the pad token of the n-gram hash has no canonical id for spare rows.
TEST_F(GenerateTest, APadTokenThatTheTokenizerLacksIsRefused) {
  ModelConfig config = *named_plan("t12");
  config.text_config.vocab_size = 288;
  config.text_config.engram_pad_token_id = 280;
  folder_ = testing::TempDir() + "/fathom_generate_" + std::to_string(::getpid());
  std::filesystem::remove_all(folder_);
  ThreadPool pool(1);
  ASSERT_TRUE(write_random_model(folder_, config, {.seed = 3}, pool));
  ASSERT_TRUE(write_file_atomic(folder_ + "/tokenizer.json", byte_tokenizer()));
  const auto loaded = load_model(folder_, {});
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message,
              HasSubstr("engram_pad_token_id: wanted a token of tokenizer.json, 0 to 255, found "
                        "280"));
}

TEST_F(GenerateTest, GreedyDecodingIsStepsWithTheLargestLogit) {
  open(256, 24);
  const std::vector<int32_t> prompt = {7, 11, 13, 17};
  const int32_t next[1] = {19};
  const auto begin = [&] {
    Sequence sequence = *runner_->open();
    EXPECT_TRUE(runner_->append(sequence, prompt));
    EXPECT_TRUE(runner_->prefill(sequence));
    EXPECT_TRUE(runner_->append(sequence, next));
    return sequence;
  };
  Sequence sequence = begin();
  std::vector<int32_t> wanted;
  for (int i = 0; i < 6; ++i) {
    const StepItem item = {.sequence = &sequence, .n_rows = 1, .want = WantLogits::kLast};
    const Tensor logits = *runner_->step({&item, 1});
    const float* row = logits.as<float>();
    wanted.push_back(static_cast<int32_t>(std::max_element(row, row + logits.dim(1)) - row));
    ASSERT_TRUE(runner_->append(sequence, {&wanted.back(), 1}));
  }
  runner_->close(sequence);

  Sequence again = begin();
  Sequence* const all[1] = {&again};
  std::vector<int32_t> found = *runner_->decode_greedy(all, 2);
  const std::vector<int32_t> rest = *runner_->decode_greedy(all, 4);
  found.insert(found.end(), rest.begin(), rest.end());
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(again.pending(), 1);
  EXPECT_EQ(again.tokens.size(), 11u);
  const auto refused = runner_->decode_greedy(all, 14);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(refused.error().message,
            "context: wanted at most 24 tokens, found 11 and 14 to decode; raise --context");
  runner_->close(again);
}

// Random state has no NaN and no code that the model cannot read: steps on it work.
TEST_F(GenerateTest, InventedSequencesDecode) {
  open(256, 200);
  Sequence sequence = *runner_->invent(150, 3);
  EXPECT_EQ(sequence.pending(), 1);
  EXPECT_EQ(sequence.length, 150);
  Sequence* const all[1] = {&sequence};
  const auto ids = runner_->decode_greedy(all, 8);
  ASSERT_TRUE(ids);
  EXPECT_EQ(sequence.length, 158);
  for (const int32_t id : *ids) EXPECT_TRUE(0 <= id && id < 256);
  const StepItem item = {.sequence = &sequence, .n_rows = 1, .want = WantLogits::kLast};
  const Tensor logits = *runner_->step({&item, 1});
  for (int64_t i = 0; i < 256; ++i) EXPECT_TRUE(std::isfinite(logits.as<float>()[i])) << i;
  runner_->close(sequence);
}

}  // namespace
}  // namespace fathom
