// The canonical sums against their statement, spelled out once more, and against other orders,
// which must differ. That the engine sums the same way is parity_test.cc.

#include "train/canonical.h"

#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "train/canonical_rows.h"

namespace fathom::train {
namespace {

Tensor noise(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kFloat);
}

// docs/design.md section 7, one operation a line.
float stated_tree(const float* a, const float* b, int64_t width) {
  float lane[16] = {};
  for (int64_t block = 0; block < width; block += 32) {
    for (int64_t j = 0; j < 16; ++j) {
      const float low = a[block + j] * b[block + j];
      const float pair = std::fma(a[block + j + 16], b[block + j + 16], low);
      lane[j] = lane[j] + pair;
    }
  }
  for (const int64_t half : {8, 4, 2, 1}) {
    for (int64_t j = 0; j < half; ++j) {
      lane[j] = lane[j] + lane[j + half];
    }
  }
  return lane[0];
}

TEST(Canonical, ProductsArePairTreesAndNoOtherOrder) {
  const at::NoGradGuard no_grad;
  const int64_t width = 416;
  const Tensor a = noise({7, width}, 1);
  const Tensor b = noise({37, width}, 2);  // a tile of four and a rest in each thread's share
  const Tensor mine = canonical::words().linear_f32(a, b);
  int64_t in_a_row = 0;
  for (int64_t r = 0; r < a.size(0); ++r) {
    for (int64_t o = 0; o < b.size(0); ++o) {
      const auto* x = a.const_data_ptr<float>() + r * width;
      const auto* y = b.const_data_ptr<float>() + o * width;
      const float wanted = stated_tree(x, y, width);
      EXPECT_EQ(mine[r][o].item<float>(), wanted) << r << " " << o;
      EXPECT_EQ(rows::pair_tree(x, y, width), wanted);
      float plain = 0;
      for (int64_t k = 0; k < width; ++k) {
        plain += x[k] * y[k];
      }
      in_a_row += plain == wanted ? 1 : 0;
    }
  }
  EXPECT_LT(in_a_row, mine.numel() / 2);
  EXPECT_FALSE(at::equal(mine, linear_f32(a, b)));
  EXPECT_FALSE(at::equal(mine, canonical::wide_words().linear_f32(a, b)));
  EXPECT_LT((mine - linear_f32(a, b)).abs().max().item<float>(), 1e-3F);
}

TEST(Canonical, AWidthThatIsNoWholeBlockEndsInZeros) {
  const at::NoGradGuard no_grad;
  const Tensor a = noise({3, 40}, 3);
  const Tensor b = noise({2, 40}, 4);
  const Tensor wide_a = at::constant_pad_nd(a, {0, 24});
  const Tensor wide_b = at::constant_pad_nd(b, {0, 24});
  const auto linear = canonical::words().linear_f32;
  EXPECT_TRUE(at::equal(linear(a, b), linear(wide_a, wide_b)));
}

struct Attention {
  Tensor q = noise({2, 32}, 5), vectors = noise({200, 32}, 6), sink = noise({2}, 7);

  Tensor run(const std::vector<int64_t>& slots) const {
    Tensor out = at::empty({2, 32}, at::kFloat);
    rows::attend({out.mutable_data_ptr<float>(), q.const_data_ptr<float>(),
                  vectors.const_data_ptr<float>(), slots.data(), static_cast<int64_t>(slots.size()),
                  sink.const_data_ptr<float>(), 2, 32, 0.5F});
    return out;
  }
  Tensor plain(const std::vector<int64_t>& slots) const {
    const Tensor ids = at::tensor(at::ArrayRef<int64_t>(slots), at::kLong);
    const Tensor rows = vectors.index_select(0, ids).to(at::kDouble);
    const Tensor scores = at::matmul(q.to(at::kDouble), rows.t()) * 0.5;
    const Tensor all = at::softmax(at::cat({scores, sink.to(at::kDouble).view({2, 1})}, 1), 1);
    return at::matmul(all.narrow(1, 0, scores.size(1)), rows);
  }
};

TEST(Canonical, AttentionIsTheSoftmaxInItsOwnOrder) {
  const Attention attention;
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < 150; ++i) {
    slots.push_back(i);
  }
  const Tensor mine = attention.run(slots);
  EXPECT_LT((mine - attention.plain(slots)).abs().max().item<double>(), 0.02);
  std::vector<int64_t> backwards(slots.rbegin(), slots.rend());
  EXPECT_FALSE(at::equal(mine, attention.run(backwards)));
  EXPECT_LT((mine - attention.run(backwards)).abs().max().item<double>(), 0.02);
}

TEST(Canonical, EmptySlotsCountButChangeNothing) {
  const Attention attention;
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < 64; ++i) {
    slots.push_back(i < 40 ? 3 * i : -1);
  }
  const Tensor mine = attention.run(slots);
  slots.insert(slots.end(), 100, -1);
  EXPECT_TRUE(at::equal(mine, attention.run(slots)));
  EXPECT_TRUE(at::equal(attention.run(std::vector<int64_t>(70, -1)), at::zeros({2, 32})));
}

TEST(Canonical, AmongEqualScoresTheSmallerExpertIsChosen) {
  const at::NoGradGuard no_grad;
  Tensor load = at::zeros({5});
  const Tensor logits = at::tensor({1.0F, 2.0F, 2.0F, 0.0F, 2.0F}).view({1, 5});
  const Tensor wt = canonical::words().route(logits, at::zeros({5}), 2, 1.5, load);
  EXPECT_TRUE(at::equal(wt, at::tensor({0.0F, 0.75F, 0.75F, 0.0F, 0.0F}).view({1, 5})));
  EXPECT_TRUE(at::equal(load, at::tensor({0.0F, 1.0F, 1.0F, 0.0F, 0.0F})));
}

// Each of these words keeps its meaning and loses the order that happened to be fast.
TEST(Canonical, WordsStayCloseToTheFastOnes) {
  const at::NoGradGuard no_grad;
  const Words& mine = canonical::words();
  const Words fast;
  const Tensor streams = noise({5, 4, 96}, 8);
  const Tensor pre = noise({5, 4}, 9);
  const Tensor norm = noise({96}, 10);
  const HcParams params{noise({24, 384}, 11), noise({3}, 12), noise({24}, 13), 1e-6, 20};
  const HcOut a = mine.hc_read(streams, pre, params, norm);
  const HcOut b = fast.hc_read(streams, pre, params, norm);
  const auto close = [](const Tensor& x, const Tensor& y) {
    return at::allclose(x, y, 1e-4, 1e-5);
  };
  EXPECT_TRUE(close(a.x, b.x) && close(a.pre, b.pre) && close(a.mix, b.mix));
  EXPECT_FALSE(at::equal(a.mix, b.mix));
  const Tensor y = noise({5, 96}, 14);
  EXPECT_TRUE(close(mine.hc_write(streams, y, a.mix), fast.hc_write(streams, y, a.mix)));
  const Tensor kv = noise({5, 480}, 15);
  const Tensor gain = noise({4, 96}, 16);
  EXPECT_TRUE(close(mine.engram_add(streams, kv, gain), fast.engram_add(streams, kv, gain)));
  const Tensor gates = noise({6, 2, 64}, 17);
  const Tensor values = noise({6, 2, 64}, 18);
  EXPECT_TRUE(close(mine.pool_group(gates, values), fast.pool_group(gates, values)));
  const SelectShape shape{8, 1, 3, 0, 0};
  const Tensor q = noise({8, 2, 32}, 19);
  const Tensor k = noise({8, 32}, 20);
  const Tensor w = noise({8, 2}, 21);
  EXPECT_TRUE(at::equal(mine.index_select(q, k, w, {}, shape).entries,
                        fast.index_select(q, k, w, {}, shape).entries));
}

}  // namespace
}  // namespace fathom::train
