// Goal: state and work of a sequence follow its context where the configuration asks for more, and
// no bit of a result does. Method: random models that differ in the sizes of window, top-k and pool
// alone, of which the context of one fills none.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/thread_pool.h"
#include "engine/load.h"
#include "engine/memory_plan.h"
#include "engine/runner.h"
#include "model/plans.h"
#include "model/synth.h"
#include "ops/backends.h"

namespace fathom {
namespace {

constexpr int64_t kContext = 256;
constexpr int64_t kHuge = 1 << 20;  // the largest that a configuration may name

struct Sizes {
  int64_t sliding_window = 0;
  int64_t index_topk = kContext;
  int64_t candidate_topk_blocks = kContext;
};

ModelConfig config_of(const Sizes& sizes) {
  ModelConfig config = *named_plan("t12");
  config.text_config.sliding_window = sizes.sliding_window;
  config.text_config.index_topk = sizes.index_topk;
  config.text_config.candidate_topk_blocks = sizes.candidate_topk_blocks;
  return config;
}

class ContextTest : public testing::TestWithParam<Schedule> {
 protected:
  void open(const Sizes& sizes) {
    folder_ = testing::TempDir() + "/fathom_context_" + std::to_string(::getpid());
    std::filesystem::remove_all(folder_);
    ThreadPool pool(1);
    ASSERT_TRUE(write_random_model(folder_, config_of(sizes), {.seed = 3}, pool));
    auto loaded = load_model(folder_, {.need_tokenizer = false});
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
    ops_ = *make_backend({.kind = BackendKind::kCpu, .n_threads = 1});
    auto runner = Runner::make(*loaded_.model, *ops_,
                               {.schedule = GetParam(), .context = kContext, .max_rows = 64});
    ASSERT_TRUE(runner) << runner.error().message;
    runner_ = std::move(*runner);
  }
  ~ContextTest() override { std::filesystem::remove_all(folder_); }

  void append_logits(const Tensor& logits, std::vector<float>& all) const {
    const float* row = logits.row<float>(0);
    all.insert(all.end(), row, row + logits.dim(1));
  }

  // Of a prompt in chunks and of steps behind it to the end of the context, with a rewind between.
  std::vector<float> logits() {
    std::mt19937 random(7);
    const auto vocab = static_cast<uint32_t>(loaded_.model->config().text_config.vocab_size);
    std::vector<int32_t> tokens(kContext);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % vocab);
    const std::span<const int32_t> all(tokens);
    std::vector<float> found;
    Sequence sequence = *runner_->open();
    EXPECT_TRUE(runner_->append(sequence, all.first(230)));
    append_logits(*runner_->prefill(sequence, 50), found);
    runner_->rewind(sequence, 220, RestoreGrade::kBounded);
    for (size_t p = 220; p < all.size(); ++p) {
      EXPECT_TRUE(runner_->append(sequence, all.subspan(p, 1)));
      append_logits(*runner_->prefill(sequence), found);
    }
    const std::vector<std::byte> saved = *runner_->save(sequence);
    runner_->close(sequence);
    Sequence again = *runner_->restore(saved, "saved");
    EXPECT_EQ(*runner_->save(again), saved);
    runner_->close(again);
    return found;
  }

  std::string folder_;
  LoadedModel loaded_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Runner> runner_;
};
INSTANTIATE_TEST_SUITE_P(Schedules, ContextTest,
                         testing::Values(Schedule::kExact, Schedule::kDeploy));

void expect_bits(const std::vector<float>& found, const std::vector<float>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  EXPECT_EQ(std::memcmp(found.data(), wanted.data(), found.size() * sizeof(float)), 0);
}

TEST_P(ContextTest, AWindowLargerThanTheContextGivesTheBitsOfOneAsLarge) {
  ASSERT_NO_FATAL_FAILURE(open({.sliding_window = kContext}));
  const std::vector<float> wanted = logits();
  const int64_t slot_bytes = runner_->windows().slot_bytes();
  ASSERT_NO_FATAL_FAILURE(open({.sliding_window = kHuge}));
  expect_bits(logits(), wanted);
  EXPECT_EQ(runner_->windows().slot_bytes(), slot_bytes);
}

// Behind a window that ends inside a block of the list the chosen entries begin there too.
TEST_P(ContextTest, AWindowThatEndsInsideABlockGivesTheBitsOfALargerOne) {
  ASSERT_NO_FATAL_FAILURE(open({.sliding_window = kContext + 36}));
  const std::vector<float> wanted = logits();
  ASSERT_EQ(runner_->window(), kContext + 36);
  ASSERT_NO_FATAL_FAILURE(open({.sliding_window = kHuge - 28}));
  EXPECT_EQ(runner_->window(), kContext + 36);
  expect_bits(logits(), wanted);
}

TEST_P(ContextTest, MoreChosenEntriesThanTheContextHasGiveTheBitsOfAsMany) {
  ASSERT_NO_FATAL_FAILURE(open({.sliding_window = 8}));
  const std::vector<float> wanted = logits();
  ASSERT_NO_FATAL_FAILURE(
      open({.sliding_window = 8, .index_topk = kHuge, .candidate_topk_blocks = kHuge}));
  expect_bits(logits(), wanted);
}

TEST(Context, BoundsWhatTheMemoryPlanCounts) {
  const RunnerOptions options = {.context = kContext};
  const auto total = [&](const Sizes& sizes) {
    return plan_memory(config_of(sizes), options, Numerics::kExact)->total();
  };
  EXPECT_EQ(total({kHuge, kHuge, kHuge}), total({kContext, kContext, kContext}));
  EXPECT_LT(total({8, kContext, kContext}), total({kContext, kContext, kContext}));
}

}  // namespace
}  // namespace fathom
