// Goal: linears, wo_a and experts mean what spec/backbone.md 2.3, 3.9 and 3.10 say. Method: golden
// vectors on every path, sums in double from the stored codes, and results that may not depend on
// threads, batch or grouping.
#include "ops/cpu/linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/math.h"
#include "ops/cpu/experts.h"
#include "ops/cpu/golden_testing.h"
#include "ops/cpu/matrix_testing.h"

namespace fathom::cpu {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kBf16, WeightFormat::kF32,
                                     WeightFormat::kFp8Block32, WeightFormat::kFp4Row32};

class MatrixWords : public testing::TestWithParam<CpuPath> {
 protected:
  void SetUp() override {
    if (resolve_path(GetParam()) != GetParam()) {
      GTEST_SKIP() << "this machine has no " << path_name(GetParam());
    }
  }
  Context context() { return {pool_, GetParam(), scratch_}; }

  ThreadPool pool_{2};
  Scratch scratch_;
};

INSTANTIATE_TEST_SUITE_P(Paths, MatrixWords,
                         testing::Values(CpuPath::kScalar, CpuPath::kAvx2, CpuPath::kAvx512),
                         [](const auto& info) { return path_name(info.param); });

Weight golden_weight(const Golden& golden, const std::string& name, WeightFormat format) {
  const DType dtype = format == WeightFormat::kFp4Row32 ? DType::kI8 : DType::kE4m3;
  return {seen_as(golden.tensor(name + ".weight"), dtype),
          seen_as(golden.tensor(name + ".scale"), DType::kE8m0), format};
}

OwnedRows golden_rows(const Golden& golden, const std::string& name) {
  const Tensor t = golden.tensor(name);
  return make_rows(golden.floats(name), t.dim(0), t.elements() / t.dim(0));
}

TEST_P(MatrixWords, LinearsEqualTheGoldenOutputs) {
  const Golden golden("linear");
  for (const char* name : {"fp8_a", "fp8_b", "fp4"}) {
    const bool fp4 = std::string(name) == "fp4";
    LinearArgs args;
    args.w = golden_weight(golden, name, fp4 ? WeightFormat::kFp4Row32 : WeightFormat::kFp8Block32);
    const OwnedRows rows = golden_rows(golden, std::string(name) + ".x");
    args.x = rows.x;
    const Tensor wanted = golden.tensor(std::string(name) + ".y");
    std::vector<Bf16> out(static_cast<size_t>(wanted.elements()), 0x7fc0);
    args.out = Tensor::dense(out.data(), DType::kBf16, {wanted.dim(0), wanted.dim(1)});
    linear(context(), args);
    SCOPED_TRACE(name);
    expect_bf16_near(args.out, wanted, 1, 0.01);
  }
}

TEST_P(MatrixWords, GroupedLinearEqualsTheGoldenOutput) {
  const Golden golden("linear");
  const Tensor x = golden.tensor("wo_a.x");
  const Tensor wanted = golden.tensor("wo_a.y");
  GroupedLinearArgs args;
  args.groups = 8;
  args.x = x.reshaped({3, 8 * 256});
  args.w.data = golden.tensor("wo_a.weight");
  OwnedRows out = make_rows(std::vector<float>(3 * 128, 1.0f), 3, 128);
  args.out = out.x;
  grouped_linear(context(), args);
  expect_bf16_near(args.out.bf16, wanted, 1, 0.01);

  const OwnedRows again = make_rows(
      [&] {
        std::vector<float> values;
        for (int i = 0; i < 3 * 128; ++i)
          values.push_back(bf16_to_float(args.out.bf16.as<Bf16>()[i]));
        return values;
      }(),
      3, 128);
  for (int i = 0; i < 3 * 128; ++i) {
    ASSERT_EQ(args.out.codes.as<uint8_t>()[i], again.x.codes.as<uint8_t>()[i]);
  }
  for (int i = 0; i < 3 * 4; ++i) {
    ASSERT_EQ(args.out.scales.as<uint8_t>()[i], again.x.scales.as<uint8_t>()[i]);
  }
}

// One routed expert with the given weights, and a shared expert whose weights are all zero.
TEST_P(MatrixWords, ExpertEqualsTheGoldenOutputs) {
  const Golden golden("linear");
  ExpertWeights routed;
  routed.w1 = golden_weight(golden, "expert.w1", WeightFormat::kFp4Row32);
  routed.w2 = golden_weight(golden, "expert.w2", WeightFormat::kFp4Row32);
  routed.w3 = golden_weight(golden, "expert.w3", WeightFormat::kFp4Row32);
  std::vector<uint8_t> zeros(64 * 128, 0);
  std::vector<uint8_t> scales(2 * 4, 120);
  ExpertWeights silent;
  const auto fp8 = [&](int64_t O, int64_t K) {
    return Weight{Tensor::dense(zeros.data(), DType::kE4m3, {O, K}),
                  Tensor::dense(scales.data(), DType::kE8m0, {O / 32, K / 32}),
                  WeightFormat::kFp8Block32};
  };
  silent.w1 = silent.w3 = fp8(64, 128);
  silent.w2 = fp8(128, 64);

  const OwnedRows rows = golden_rows(golden, "expert.x");
  std::vector<int32_t> ids(6, 0);
  std::vector<float> weights(6, 1.0f);
  std::vector<Bf16> y(6 * 128);
  ExpertsArgs args;
  args.y = Tensor::dense(y.data(), DType::kBf16, {6, 128});
  args.x = rows.x;
  args.ids = Tensor::dense(ids.data(), DType::kI32, {6, 1});
  args.weights = Tensor::dense(weights.data(), DType::kF32, {6, 1});
  args.experts = std::span(&routed, 1);
  args.shared = silent;
  args.swiglu_limit = 10.0f;
  experts(context(), args, nullptr);
  expect_bf16_near(args.y, golden.tensor("expert.y_unweighted"), 2, 0.01);

  args.weights = golden.tensor("expert.route_weight");
  experts(context(), args, nullptr);
  expect_bf16_near(args.y, golden.tensor("expert.y_weighted"), 2, 0.01);
}

struct DoubleSum {
  double sum = 0;
  double size = 0;  // of the absolute products
};

DoubleSum double_dot(const float* a, const float* b, int64_t K) {
  DoubleSum result;
  for (int64_t k = 0; k < K; ++k) {
    result.sum += double(a[k]) * b[k];
    result.size += std::abs(double(a[k]) * b[k]);
  }
  return result;
}

TEST_P(MatrixWords, LinearIsTheSumOverStoredCodes) {
  std::mt19937_64 random(11);
  const int64_t n_rows = 3, O = 40, K = 96;
  for (const WeightFormat format : kFormats) {
    const OwnedRows rows = make_rows(random_values(random, n_rows * K), n_rows, K);
    const OwnedWeight weight = make_weight(random, format, O, K);
    std::vector<float> out(static_cast<size_t>(n_rows * O));
    linear(context(), {Tensor::dense(out.data(), DType::kF32, {n_rows, O}), rows.x, weight.w});
    std::vector<float> x(static_cast<size_t>(n_rows * K)), w(static_cast<size_t>(K));
    expand_rows(rows.x, format, 0, n_rows, x.data());
    for (int64_t i = 0; i < n_rows * O; ++i) {
      expand_weight_row(weight.w, i % O, w.data());
      const DoubleSum wanted = double_dot(x.data() + i / O * K, w.data(), K);
      ASSERT_NEAR(out[static_cast<size_t>(i)], wanted.sum, 1e-6 * wanted.size)
          << format_name(format);
    }
  }
}

// Random experts of two formats, one bf16; every row's result against rows one by one.
struct RandomMoe {
  static constexpr int64_t kRows = 19, kExperts = 5, kChosen = 2, kHidden = 96, kWidth = 64;
  explicit RandomMoe(uint64_t seed) : random(seed) {
    for (int64_t e = 0; e <= kExperts; ++e) {
      const WeightFormat format = e == kExperts ? WeightFormat::kFp8Block32
                                  : e == 1      ? WeightFormat::kBf16
                                                : WeightFormat::kFp4Row32;
      const auto keep = [&](int64_t O, int64_t K) {
        owned.push_back(std::make_unique<OwnedWeight>(make_weight(random, format, O, K)));
        return owned.back()->w;
      };
      ExpertWeights w;
      w.w1 = keep(kWidth, kHidden);
      w.w3 = keep(kWidth, kHidden);
      w.w2 = keep(kHidden, kWidth);
      weights.push_back(w);
    }
    rows = make_rows(random_values(random, kRows * kHidden), kRows, kHidden);
    for (int64_t r = 0; r < kRows; ++r) {
      const auto first = static_cast<int32_t>(random() % kExperts);
      ids.push_back(first);
      ids.push_back(
          static_cast<int32_t>((first + 1 + static_cast<int32_t>(random() % 4)) % kExperts));
      route.push_back(static_cast<float>(random() % 1000) * 1e-3f);
      route.push_back(static_cast<float>(random() % 1000) * 1e-3f);
    }
  }

  ExpertsArgs args(int64_t begin, int64_t end, Bf16* y) {
    ExpertsArgs a;
    a.y = Tensor::dense(y, DType::kBf16, {end - begin, kHidden});
    a.x = rows.x.rows(begin, end);
    a.ids = Tensor::dense(ids.data() + begin * kChosen, DType::kI32, {end - begin, kChosen});
    a.weights = Tensor::dense(route.data() + begin * kChosen, DType::kF32, {end - begin, kChosen});
    a.experts = std::span(weights).first(kExperts);
    a.shared = weights.back();
    a.swiglu_limit = 2.0f;
    return a;
  }

  std::mt19937_64 random;
  std::vector<std::unique_ptr<OwnedWeight>> owned;
  std::vector<ExpertWeights> weights;
  OwnedRows rows;
  std::vector<int32_t> ids;
  std::vector<float> route;
};

// The definition, one row and one expert after the other, from linear().
std::vector<Bf16> experts_by_definition(const Context& context, RandomMoe& moe, int64_t r) {
  constexpr int64_t D = RandomMoe::kHidden, F = RandomMoe::kWidth;
  std::vector<std::pair<int64_t, float>> chosen;
  for (int64_t i = 0; i < RandomMoe::kChosen; ++i) {
    const auto at = static_cast<size_t>(r * RandomMoe::kChosen + i);
    chosen.emplace_back(moe.ids[at], moe.route[at]);
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.emplace_back(RandomMoe::kExperts, 1.0f);
  std::vector<float> y(D, 0.0f);
  for (const auto& [e, weight] : chosen) {
    const ExpertWeights& w = moe.weights[static_cast<size_t>(e)];
    std::vector<Bf16> gate(F), up(F), out(D);
    const Activation x = moe.rows.x.rows(r, r + 1);
    linear(context, {Tensor::dense(gate.data(), DType::kBf16, {1, F}), x, w.w1});
    linear(context, {Tensor::dense(up.data(), DType::kBf16, {1, F}), x, w.w3});
    std::vector<float> hidden(F);
    for (size_t j = 0; j < F; ++j) {
      const float g = std::min(bf16_to_float(gate[j]), 2.0f);
      const float u = std::max(-2.0f, std::min(bf16_to_float(up[j]), 2.0f));
      const float h = g * sigmoid(g) * u;
      hidden[j] = h * weight;
    }
    const OwnedRows middle = make_rows(hidden, 1, F);
    linear(context, {Tensor::dense(out.data(), DType::kBf16, {1, D}), middle.x, w.w2});
    for (size_t j = 0; j < D; ++j) y[j] = y[j] + bf16_to_float(out[j]);
  }
  std::vector<Bf16> rounded;
  for (const float v : y) rounded.push_back(float_to_bf16(v));
  return rounded;
}

TEST_P(MatrixWords, ExpertsEqualTheirDefinitionRowByRow) {
  RandomMoe moe(5);
  std::vector<Bf16> y(RandomMoe::kRows * RandomMoe::kHidden, 0x7fc0);
  experts(context(), moe.args(0, RandomMoe::kRows, y.data()), nullptr);
  for (int64_t r = 0; r < RandomMoe::kRows; ++r) {
    const auto wanted = experts_by_definition(context(), moe, r);
    for (int64_t j = 0; j < RandomMoe::kHidden; ++j) {
      ASSERT_EQ(y[static_cast<size_t>(r * RandomMoe::kHidden + j)], wanted[static_cast<size_t>(j)])
          << "row " << r;
    }
  }
}

TEST_P(MatrixWords, ExpertsDoNotDependOnBatchOrThreads) {
  RandomMoe moe(6);
  constexpr int64_t kRows = RandomMoe::kRows;
  std::vector<Bf16> together(kRows * RandomMoe::kHidden), apart(together.size(), 0x7fc0);
  experts(context(), moe.args(0, kRows, together.data()), nullptr);
  ThreadPool one(1);
  const Context alone{one, GetParam(), scratch_};
  for (int64_t begin = 0; begin < kRows;) {
    const int64_t end = std::min(kRows, begin + 1 + begin % 4);
    experts(alone, moe.args(begin, end, apart.data() + begin * RandomMoe::kHidden), nullptr);
    begin = end;
  }
  EXPECT_EQ(together, apart);
}

TEST_P(MatrixWords, SharedOutputIsShownAndMayBeReplaced) {
  RandomMoe moe(7);
  std::vector<Bf16> plain(RandomMoe::kHidden), replaced(RandomMoe::kHidden);
  std::vector<Bf16> shared;
  const std::function<void(const Tensor&)> look = [&](const Tensor& t) {
    shared.assign(t.as<Bf16>(), t.as<Bf16>() + t.elements());
  };
  experts(context(), moe.args(0, 1, plain.data()), nullptr);
  experts(context(), moe.args(0, 1, replaced.data()), &look);
  EXPECT_EQ(plain, replaced);
  ASSERT_EQ(shared.size(), plain.size());

  const std::function<void(const Tensor&)> clear = [&](const Tensor& t) {
    std::fill(t.as<Bf16>(), t.as<Bf16>() + t.elements(), float_to_bf16(1000.0f));
  };
  experts(context(), moe.args(0, 1, replaced.data()), &clear);
  EXPECT_NE(plain, replaced);
}

}  // namespace
}  // namespace fathom::cpu
