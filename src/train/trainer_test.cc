// The loop on a CPU: it learns, it resumes bit for bit, and what it exports reads back.

#include "train/trainer.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "train/export.h"

namespace fathom::train {
namespace {

namespace fs = std::filesystem;

const std::string kRoot = FATHOM_SOURCE_DIR;

// Every word of the small models here is shorter than the barrier of a thread pool.
class OneThread : public ::testing::Environment {
  void SetUp() override { at::set_num_threads(1); }
};
const auto* const kOneThread = ::testing::AddGlobalTestEnvironment(new OneThread);

// A stream with structure: a fixed walk through the vocabulary with a little noise.
void write_stream(const fs::path& path, int64_t count, uint64_t seed) {
  std::ofstream out(path, std::ios::binary);
  uint64_t state = seed;
  uint16_t token = 3;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    token = static_cast<uint16_t>((state >> 60) == 0 ? (state >> 33) % 64 : (token * 5 + 7) % 64);
    out.write(reinterpret_cast<const char*>(&token), 2);
  }
}

class TrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("fathom_train_" +
               std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "data");
    write_stream(folder_ / "data/a.u16", 20000, 1);
    write_stream(folder_ / "data/b.u16", 4000, 2);
    write_stream(folder_ / "data/r.u16", 3900, 3);
    std::ofstream(folder_ / "data/r.w8") << std::string(3900, 3);
    std::ofstream(folder_ / "data/index.json") << R"({"vocab_size": 64, "sources": [
            {"name": "a", "kind": "code", "tokens": "a.u16", "n_tokens": 20000, "bytes": 40000,
             "split": "train", "row": 0},
            {"name": "r", "kind": "recall", "tokens": "r.u16", "n_tokens": 3900, "bytes": 8000,
             "split": "train", "row": 65, "weights": "r.w8"},
            {"name": "b", "tokens": "b.u16", "n_tokens": 4000, "bytes": 8000,
             "split": "heldout"}]})";
    recipe_.config = kRoot + "/tests/train/tiny/config.json";
    recipe_.mix = {{"code", 0.9}, {"recall", 0.1}};
    recipe_.steps = 40;
    recipe_.batch_tokens = 512;
    recipe_.lengths = {64, 128};
    recipe_.length_until = {0.5, 1.0};
    recipe_.warmup_steps = 3;
    recipe_.dense_steps = 10;
    recipe_.dense_until = 0.25;
    recipe_.log_every = 5;
    recipe_.eval_every = 0;
  }

  std::unique_ptr<Trainer> make(const std::string& out) {
    auto data = Dataset::open((folder_ / "data").string());
    EXPECT_TRUE(data.has_value()) << data.error().message;
    auto trainer = Trainer::create(recipe_, std::move(*data), (folder_ / out).string(), at::kCPU,
                                   {at::kFloat, at::kFloat});
    EXPECT_TRUE(trainer.has_value()) << trainer.error().message;
    return std::move(*trainer);
  }

  fs::path folder_;
  Recipe recipe_;
};

TEST_F(TrainerTest, LearnsAndExports) {
  const auto trainer = make("run");
  const double before = trainer->evaluate(2000, false)[0].bits_per_byte;
  ASSERT_TRUE(trainer->run(1e9).has_value());
  const double after = trainer->evaluate(2000, true)[0].bits_per_byte;
  EXPECT_LT(after, 0.5 * before);

  const std::string out = (folder_ / "model").string();
  ASSERT_TRUE(export_model(trainer->model(), trainer->params(), out).has_value());
  const auto file = read_config(out + "/config.json");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  Params params(file->config, {at::kFloat, at::kFloat}, at::kCPU);
  Model model(file->config, params, at::arange(64, at::kLong));
  const auto done = import_model(model, params, out);
  ASSERT_TRUE(done.has_value()) << done.error().message;
  trainer->params().sync(true);
  const at::NoGradGuard no_grad;
  for (const ParamSpec& spec : params.specs()) {
    const Tensor stored = params.get(spec.name, spec.layer);
    Tensor simulated = trainer->params().get(spec.name, spec.layer);
    if (spec.store == Store::kBf16) {
      simulated = simulated.to(at::kBFloat16).to(at::kFloat);
    }
    EXPECT_TRUE(at::equal(stored, simulated)) << spec.layer << " " << spec.name;
  }
}

TEST_F(TrainerTest, ResumesBitForBit) {
  recipe_.steps = 12;
  const auto whole = make("whole");
  ASSERT_TRUE(whole->run(1e9).has_value());
  {
    const auto first = make("split");
    for (int i = 0; i < 5; ++i) {
      first->one_step();
    }
    ASSERT_TRUE(first->save().has_value());
  }
  const auto second = make("split");
  EXPECT_EQ(second->step(), 5);
  ASSERT_TRUE(second->run(1e9).has_value());
  EXPECT_TRUE(at::equal(whole->params().master(), second->params().master()));
}

TEST_F(TrainerTest, StartsFromACheckpointAndMovesItsIndexerAlone) {
  recipe_.steps = 8;
  const auto first = make("first");
  ASSERT_TRUE(first->run(1e9).has_value());
  const std::string model = (folder_ / "model").string();
  ASSERT_TRUE(export_model(first->model(), first->params(), model).has_value());

  recipe_.indexer_only = true;
  recipe_.simulate_from = 0;
  recipe_.dense_steps = 0;
  const auto second = make("second");
  ASSERT_TRUE(second->start_from(model).has_value());
  const Tensor start = second->params().master().clone();
  const Tensor biases = second->model().route_bias().clone();
  ASSERT_TRUE(second->run(1e9).has_value());
  const Tensor moved = second->params().master().ne(start);
  const auto [begin, end] = second->params().range(Group::kIndexer);
  EXPECT_GT(moved.slice(0, begin, end).sum().item<int64_t>(), (end - begin) / 2);
  EXPECT_EQ(moved.slice(0, 0, begin).sum().item<int64_t>(), 0);
  EXPECT_EQ(moved.slice(0, end).sum().item<int64_t>(), 0);
  EXPECT_TRUE(at::equal(second->model().route_bias(), biases));
}

TEST_F(TrainerTest, RefusesACheckpointOfAnotherModel) {
  fs::create_directories(folder_ / "bad");
  std::ofstream(folder_ / "bad/checkpoint.bin") << "{\"count\": 5}\nabc";
  auto data = Dataset::open((folder_ / "data").string());
  ASSERT_TRUE(data.has_value());
  const auto trainer = Trainer::create(recipe_, std::move(*data), (folder_ / "bad").string(),
                                       at::kCPU, {at::kFloat, at::kFloat});
  ASSERT_FALSE(trainer.has_value());
  EXPECT_NE(trainer.error().message.find("another model"), std::string::npos);
}

TEST(Recipe, UnknownKeysAreErrors) {
  const auto good = parse_recipe("steps = 3 # few\n[optim]\nclip = 0.5\n");
  ASSERT_TRUE(good.has_value());
  EXPECT_EQ(good->steps, 3);
  EXPECT_EQ(good->optim.clip, 0.5);
  EXPECT_FALSE(parse_recipe("stepz = 3\n").has_value());
  EXPECT_FALSE(parse_recipe("steps = many\n").has_value());
}

}  // namespace
}  // namespace fathom::train
