// Goal: the golden choice of entries and blocks, with fp32 and with bf16 scores, restricted to a
// pool or not. Method: the word over golden packed keys, every query a sequence; then the streaming
// selection against a full sort of the scores that a probe sees, on random data.
#include "ops/cpu/indexer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/backends.h"
#include "ops/cpu/best.h"
#include "ops/cpu/golden_testing.h"
#include "ops/cpu/paths_testing.h"
#include "ops/cpu/quantize.h"

namespace fathom {
namespace {

class Indexer : public testing::TestWithParam<CpuPath> {};

// Packed keys in one block of memory that all sequences share, and rotation tables that turn
// nothing.
struct KeyStore {
  KeyStore(const std::vector<float>& values, int64_t width, int64_t n_sequences, int ratio) {
    const auto n = static_cast<int64_t>(values.size()) / width;
    memory = Buffer(n * (width / 2 + width / 32));
    view.base = reinterpret_cast<uint8_t*>(memory.data());
    view.block_bytes = memory.bytes();
    lists.assign(static_cast<size_t>(n_sequences), std::span<const BlockId>(&block, 1));
    view.blocks = lists;
    view.stream = {.role = KvRole::kIndex,
                   .ratio = ratio,
                   .rows = n,
                   .payload_bytes = width / 2,
                   .scale_bytes = width / 32,
                   .scale_offset = n * width / 2};
    for (int64_t e = 0; e < n; ++e) {
      cpu::quantize_idx4(values.data() + e * width, width, view.payload(0, e), view.scale(0, e));
    }
  }
  KeyStore(const KeyStore&) = delete;

  BlockId block{};
  std::vector<std::span<const BlockId>> lists;
  Buffer memory;
  KvView view;
};

struct StillRope {
  explicit StillRope(int64_t n_rows)
      : ones(static_cast<size_t>(n_rows * 16), 1.0f),
        zeros(static_cast<size_t>(n_rows * 16), 0.0f) {
    rope.inv_freq = Tensor::dense(zeros.data(), DType::kF32, {16});
    rope.cos = Tensor::dense(ones.data(), DType::kF32, {n_rows, 16});
    rope.sin = Tensor::dense(zeros.data(), DType::kF32, {n_rows, 16});
  }
  std::vector<float> ones;
  std::vector<float> zeros;
  Rope rope;
};

class ScoreProbe final : public Probe {
 public:
  void value(const std::string& name, const Tensor& t) override {
    if (name == "attn.index_scores") scores.assign(t.as<float>(), t.as<float>() + t.elements());
  }
  std::vector<float> scores;
};

std::vector<int32_t> ids(const Tensor& t) {
  return std::vector<int32_t>(t.as<int32_t>(), t.as<int32_t>() + t.elements());
}

// kind: "source" builds a pool, "reindex" is held to it; mode: "fp32" or "bf16" scores.
void expect_golden_choice(CpuPath path, const std::string& kind, const std::string& mode,
                          ScoreProbe* probe) {
  const Golden golden("indexer");
  const Tensor n_vis = golden.tensor("n_vis");
  std::vector<SequenceRows> sequences;
  for (int64_t i = 0; i < 6; ++i) sequences.push_back({1, n_vis.as<int32_t>()[i] - 1, 0, 0});
  const Rows rows(sequences);
  const KeyStore keys(golden.floats("index_k"), 128, 6, 1);
  const StillRope still(6);
  const Tensor pool = golden.tensor("pool_blocks_" + mode);
  std::vector<int32_t> topk(6 * 64, 77);
  std::vector<int32_t> pool_out(6 * 16, 77);
  auto ops = std::move(*make_backend({.n_threads = 2, .cpu_path = path}));
  ops->set_probe(probe);
  IndexSelectArgs args;
  args.topk = Tensor::dense(topk.data(), DType::kI32, {6, 64});
  if (kind == "source") args.pool_out = Tensor::dense(pool_out.data(), DType::kI32, {6, 16});
  if (kind == "reindex") args.pool_in = pool;
  args.q = golden.tensor(kind + ".q").reshaped({6, 4096});
  args.weights = golden.tensor(kind + ".wproj");
  args.keys = keys.view;
  args.rope = still.rope;
  args.rows = &rows;
  args.n_heads = 32;
  args.scores = mode == "bf16" ? IndexScores::kBf16 : IndexScores::kF32;
  ops->index_select(args);
  EXPECT_EQ(topk, ids(golden.tensor(kind + ".topk_" + mode))) << kind << " " << mode;
  if (kind == "source") {
    EXPECT_EQ(pool_out, ids(pool)) << mode;
  }
}

TEST_P(Indexer, ChoosesTheGoldenEntries) {
  const Golden golden("indexer");
  for (const std::string kind : {"source", "reindex"}) {
    for (const std::string mode : {"fp32", "bf16"}) {
      expect_golden_choice(GetParam(), kind, mode, nullptr);
      ScoreProbe probe;
      expect_golden_choice(GetParam(), kind, mode, &probe);
      const auto wanted = golden.floats(kind + ".scores_" + mode);
      ASSERT_EQ(probe.scores.size(), wanted.size());
      const float relative = mode == "bf16" ? 1e-2f : 1e-6f;
      for (size_t i = 0; i < wanted.size(); ++i) {
        if (probe.scores[i] == wanted[i]) continue;
        // The golden scores stand before the pool is applied.
        if (kind == "reindex" && probe.scores[i] == -INFINITY) continue;
        ASSERT_NEAR(probe.scores[i], wanted[i], relative * std::fabs(wanted[i]) + 1e-6f);
      }
    }
  }
}

// Random values on the E2M1 grid, so that ties are frequent.
std::vector<float> grid(std::mt19937_64& random, size_t n) {
  std::vector<float> values(n);
  for (float& v : values) v = e2m1_to_float(static_cast<uint8_t>(random() & 15u));
  return values;
}

struct RandomCase {
  int64_t n_rows;
  int64_t first_position;
  int ratio;
  int64_t K;
  int64_t P;  // blocks
};

void expect_full_sort(CpuPath path, const RandomCase& c, int n_threads, std::mt19937_64& random) {
  const int64_t Hi = 4;
  const int64_t di = 32;
  const int64_t n_entries = (c.first_position + c.n_rows) / c.ratio;
  const KeyStore keys(grid(random, static_cast<size_t>(std::max<int64_t>(1, n_entries) * di)), di,
                      1, c.ratio);
  const auto q = grid(random, static_cast<size_t>(c.n_rows * Hi * di));
  const auto w = grid(random, static_cast<size_t>(c.n_rows * Hi));
  std::vector<Bf16> q16(q.size());
  std::vector<Bf16> w16(w.size());
  std::transform(q.begin(), q.end(), q16.begin(), float_to_bf16);
  std::transform(w.begin(), w.end(), w16.begin(), float_to_bf16);
  const Rows rows({{c.n_rows, c.first_position, 0, 0}});
  const StillRope still(c.n_rows);
  auto ops = std::move(*make_backend({.n_threads = n_threads, .cpu_path = path}));

  std::vector<int32_t> pool(static_cast<size_t>(c.n_rows * c.P));
  IndexSelectArgs args;
  args.q = Tensor::dense(q16.data(), DType::kBf16, {c.n_rows, Hi * di});
  args.weights = Tensor::dense(w16.data(), DType::kBf16, {c.n_rows, Hi});
  args.keys = keys.view;
  args.rope = still.rope;
  args.rows = &rows;
  args.n_heads = Hi;
  args.block_size = 4;
  const auto select = [&](bool restricted, Probe* probe) {
    std::vector<int32_t> topk(static_cast<size_t>(c.n_rows * c.K), 77);
    const Tensor pool_view = Tensor::dense(pool.data(), DType::kI32, {c.n_rows, c.P});
    args.topk = Tensor::dense(topk.data(), DType::kI32, {c.n_rows, c.K});
    args.pool_out = restricted ? Tensor() : pool_view;
    args.pool_in = restricted ? pool_view : Tensor();
    ops->set_probe(probe);
    ops->index_select(args);
    return topk;
  };
  const auto topk = select(false, nullptr);
  const auto streamed_pool = pool;
  ScoreProbe probe;
  EXPECT_EQ(topk, select(false, &probe));
  EXPECT_EQ(streamed_pool, pool);
  for (int64_t row = 0; row < c.n_rows; ++row) {
    const int64_t visible = visible_entries(rows.position(row), c.ratio);
    std::vector<int32_t> order(static_cast<size_t>(visible));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    const float* scores = probe.scores.data() + row * n_entries;
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
    order.resize(static_cast<size_t>(std::min(visible, c.K)));
    std::sort(order.begin(), order.end());
    order.resize(static_cast<size_t>(c.K), kNoEntry);
    EXPECT_EQ(order,
              std::vector<int32_t>(topk.begin() + row * c.K, topk.begin() + (row + 1) * c.K));
  }
  EXPECT_EQ(select(true, nullptr), select(true, &probe));
}

TEST_P(Indexer, StreamsLikeAFullSort) {
  std::mt19937_64 random(7);
  for (const int n_threads : {1, 3}) {
    for (const RandomCase& c : {RandomCase{1, 0, 2, 8, 4}, RandomCase{33, 0, 2, 8, 4},
                                RandomCase{70, 5, 1, 8, 4}, RandomCase{3, 9000, 1, 16, 100},
                                RandomCase{1, 9001, 1, 512, 40}, RandomCase{130, 300, 2, 64, 20}}) {
      expect_full_sort(GetParam(), c, n_threads, random);
    }
  }
}

TEST(BestK, DropsNanAndMinusInfinityAndPads) {
  cpu::BestK best;
  best.begin(3);
  best.push(-INFINITY, 1);
  best.push(NAN, 2);
  best.push(-3.0f, 9);
  best.push(1.0f, 4);
  std::vector<int32_t> out(3);
  best.write(out.data());
  EXPECT_EQ(out[0], 4);
  EXPECT_EQ(out[1], 9);
  EXPECT_EQ(out[2], kNoEntry);
}

INSTANTIATE_TEST_SUITE_P(Paths, Indexer, testing::ValuesIn(paths_here()));

}  // namespace
}  // namespace fathom
