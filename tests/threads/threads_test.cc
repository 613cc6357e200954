// Goal: no data race where threads meet above the pool itself: a model's step, a checkpoint's
// bytes, one tokenizer for several callers. Method: short runs on T12 and on the shipped tokenizer,
// whose results must be those of one thread; the thread sanitizer (preset tsan) watches them.
#include <gtest/gtest.h>

#include <thread>

#include "checkpoint/fingerprint.h"
#include "engine/load.h"
#include "engine/runner.h"
#include "ops/backends.h"

namespace fathom {
namespace {

const std::string kRoot = FATHOM_SOURCE_DIR;

// Logits after a prompt of 20 tokens, in chunks of 8, and after each of three more tokens.
std::vector<float> logits_of(const Model& model, Schedule schedule, int n_threads) {
  const auto ops = make_backend({.n_threads = n_threads}).value();
  const auto runner =
      Runner::make(model, *ops, {.schedule = schedule, .context = 32, .max_rows = 32}).value();
  Sequence sequence = runner->open().value();
  std::vector<float> all;
  int32_t token = 3;
  for (const int n_new : {20, 1, 1, 1}) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < n_new; ++i) tokens.push_back(token = (token * 37 + 11) % 256);
    EXPECT_TRUE(runner->append(sequence, tokens));
    const Tensor row = runner->prefill(sequence, 8).value();
    all.insert(all.end(), row.as<float>(), row.as<float>() + row.elements());
  }
  return all;
}

TEST(Threads, ShareTheStepsOfAModel) {
  const auto loaded = load_model(kRoot + "/tests/golden/t12", {.need_tokenizer = false});
  ASSERT_TRUE(loaded) << loaded.error().message;
  for (const Schedule schedule : {Schedule::kExact, Schedule::kDeploy}) {
    const std::vector<float> alone = logits_of(*loaded->model, schedule, 1);
    ASSERT_EQ(alone.size(), 4u * 256);
    EXPECT_EQ(logits_of(*loaded->model, schedule, 2), alone);
    EXPECT_EQ(logits_of(*loaded->model, schedule, 4), alone);
  }
}

TEST(Threads, ShareTheBytesOfACheckpoint) {
  const auto checkpoint = Checkpoint::open(kRoot + "/tests/golden/t12");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ThreadPool one(1);
  ThreadPool four(4);
  EXPECT_EQ(weights_fingerprint(*checkpoint, four), weights_fingerprint(*checkpoint, one));
  EXPECT_TRUE(find_bad_codes(*checkpoint, four).empty());
}

TEST(Threads, ShareATokenizer) {
  const auto tokenizer = Tokenizer::load(kRoot + "/models/fathom-34m/tokenizer.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const std::string text =
      "Several callers, one vocabulary: 12345\n\xE4\xB8\xAD\xE6\x96\x87 <think>";
  std::vector<std::string> came_back(4);
  std::vector<std::thread> threads;
  for (std::string& own : came_back) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i)
        own +=
            tokenizer->decode_bytes(tokenizer->encode(text, AddedTokens::kMatch).value()).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string wanted;
  for (int i = 0; i < 20; ++i) wanted += text;
  EXPECT_EQ(came_back, std::vector<std::string>(4, wanted));
}

}  // namespace
}  // namespace fathom
