// Goal: a random model is complete, the same everywhere, and of the intended ranges. Method: the
// writer's output against the enumeration, pinned digests, and statistics of the drawn values.

#include "model/synth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/folder_testing.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/fingerprint.h"
#include "model/inventory.h"
#include "model/plans.h"
#include "tensor/codecs.h"

namespace fathom {
namespace {

class Synth : public FolderTest {
 protected:
  std::string made(const std::string& name, uint64_t seed, int n_threads, int64_t shard_bytes) {
    ThreadPool pool(n_threads);
    const std::string path = (folder_ / name).string();
    const SynthOptions options = {.seed = seed, .max_shard_bytes = shard_bytes};
    const Result<void> done = write_random_model(path, config_, options, pool);
    EXPECT_TRUE(done) << done.error().message;
    return path;
  }
  std::string fingerprint(const std::string& path) {
    ThreadPool pool(2);
    return to_hex(weights_fingerprint(Checkpoint::open(path).value(), pool));
  }
  ModelConfig config_ = named_plan("t12").value();
};

TEST_F(Synth, TheFilesAreAsExpectedAndHoldNoBadCode) {
  const std::string path = made("a", 1, 2, 1 << 20);
  const auto checkpoint = Checkpoint::open(path).value();
  EXPECT_TRUE(checkpoint.compare(expected_tensors(config_)).empty());
  EXPECT_GE(checkpoint.files().size(), 4u);
  ThreadPool pool(2);
  EXPECT_TRUE(find_bad_codes(checkpoint, pool).empty());
  const auto config = read_config(path + "/config.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->config == config_);
}

TEST_F(Synth, TheSeedAloneDecidesTheWeights) {
  const std::string one = fingerprint(made("one", 7, 1, 1 << 30));
  EXPECT_EQ(fingerprint(made("two", 7, 3, 1 << 19)), one);
  EXPECT_NE(fingerprint(made("other", 8, 2, 1 << 30)), one);
}

// The bytes are part of the contract: benchmarks and cases name a plan and a seed.
TEST_F(Synth, TheBytesOfASeedNeverChange) {
  EXPECT_EQ(fingerprint(made("a", 0, 2, 1 << 30)),
            "e99cb76ea28f150d9c0358a7b2391571dbaed30ee0d8b9a08d785e320de0c229");
}

TEST_F(Synth, AnyPartCanBeMadeByItself) {
  const RandomWeights weights(config_, 3);
  for (size_t i = 0; i < weights.tensors().size(); i += 37) {
    std::vector<std::byte> whole(static_cast<size_t>(weights.tensors()[i].bytes()));
    weights.fill(whole, i, 0);
    const int64_t offset = static_cast<int64_t>(whole.size()) / 2 / 8 * 8;
    std::vector<std::byte> part(whole.size() - static_cast<size_t>(offset));
    weights.fill(part, i, offset);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + offset))
        << weights.tensors()[i].name;
  }
}

// Root mean square of a matrix in its stored form.
double rms_of(const Checkpoint& checkpoint, const std::string& stem) {
  const Tensor codes = checkpoint.get(stem + ".weight").value();
  const Tensor scales = checkpoint.get(stem + ".scale").value();
  const bool packed = codes.dtype == DType::kI8;
  const int64_t in = packed ? 2 * codes.dim(1) : codes.dim(1);
  double sum = 0;
  for (int64_t row = 0; row < codes.dim(0); ++row) {
    for (int64_t k = 0; k < in; ++k) {
      const int64_t scale_row = packed ? row : row / 32;
      const float scale = e8m0_to_float(scales.row<uint8_t>(scale_row)[k / 32]);
      const float code =
          packed
              ? e2m1_to_float(static_cast<uint8_t>(codes.row<uint8_t>(row)[k / 2] >> (4 * (k % 2))))
              : e4m3_to_float(codes.row<uint8_t>(row)[k]);
      sum += static_cast<double>(code) * code * scale * scale;
    }
  }
  return std::sqrt(sum / static_cast<double>(codes.dim(0) * in));
}

TEST_F(Synth, MatricesHaveTheirGain) {
  config_.text_config.hidden_size = 512;
  config_.text_config.moe_intermediate_size = 512;
  const auto checkpoint = Checkpoint::open(made("a", 5, 2, 1 << 30)).value();
  const auto gain = [&](const std::string& stem, double in) {
    return rms_of(checkpoint, stem) * std::sqrt(in);
  };
  EXPECT_NEAR(gain("layers.3.ffn.experts.2.w1", 512), 1.3, 0.06);
  EXPECT_NEAR(gain("layers.3.ffn.experts.2.w2", 512), 0.06, 0.003);
  EXPECT_NEAR(gain("layers.3.ffn.shared_experts.w3", 512), 1.3, 0.12);
  EXPECT_NEAR(gain("layers.3.attn.wq_a", 512), 1.0, 0.15);
  EXPECT_NEAR(gain("layers.1.engram.wkv", 192), 1.0, 0.12);
}

TEST_F(Synth, OneThatIsStoppedLeavesNothing) {
  ThreadPool pool(2);
  const std::string path = (folder_ / "a").string();
  SynthOptions options = {.max_shard_bytes = 1 << 18};
  options.progress = [&](int64_t, int64_t) {
    EXPECT_TRUE(std::filesystem::exists(path));
    return false;
  };
  const auto stopped = write_random_model(path, config_, options, pool);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(Synth, AFolderWithAModelIsLeftAlone) {
  made("a", 1, 1, 1 << 30);
  ThreadPool pool(1);
  const auto again = write_random_model((folder_ / "a").string(), config_, {}, pool);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("wanted a folder without *.safetensors"), std::string::npos);
}

}  // namespace
}  // namespace fathom
