// Goal: coefficients within 2e-6 of the golden ones, streams within one bf16 step, the same bits on
// every path. Method: golden vectors at the released width, through the free functions.
#include "ops/cpu/mhc.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/math.h"
#include "ops/cpu/dot.h"
#include "ops/cpu/golden_testing.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/paths_testing.h"

namespace fathom {
namespace {

struct Coefficients {
  std::vector<float> pre = std::vector<float>(4, NAN);
  std::vector<float> post = std::vector<float>(4, NAN);
  std::vector<float> comb = std::vector<float>(16, NAN);
};

Coefficients coefficients(const float* mix, const float* scale, const float* base) {
  Coefficients c;
  cpu::mhc_coefficients_row({.pre = c.pre.data(),
                             .post = c.post.data(),
                             .comb = c.comb.data(),
                             .mix = mix,
                             .scale = scale,
                             .base = base,
                             .n = 4});
  return c;
}

void expect_near(const std::vector<float>& found, const float* wanted, double tolerance) {
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], tolerance) << i;
}

TEST(Mhc, SinkhornEqualsTheGoldenRows) {
  const Golden golden("sinkhorn");
  const struct {
    const char* prefix;
    std::vector<float> scale;
    std::vector<float> base;
  } sets[] = {{"", golden.floats("scale"), golden.floats("base")},
              {"hard.", std::vector<float>(3, 1.0f), std::vector<float>(24, 0.0f)}};
  for (const auto& set : sets) {
    const std::string prefix = set.prefix;
    const auto mix = golden.floats(prefix + "mix");
    const auto pre = golden.floats(prefix + "pre");
    const auto post = golden.floats(prefix + "post");
    const auto comb = golden.floats(prefix + "comb");
    for (size_t row = 0; row < mix.size() / 24; ++row) {
      const Coefficients c = coefficients(mix.data() + row * 24, set.scale.data(), set.base.data());
      expect_near(c.pre, pre.data() + row * 4, 2e-6);
      expect_near(c.post, post.data() + row * 4, 2e-6);
      expect_near(c.comb, comb.data() + row * 16, 2e-6);
    }
  }
}

TEST(Mhc, SinkhornFollowsThePublishedVector) {
  const Golden golden("sinkhorn");
  auto comb = golden.floats("simple_logits");
  cpu::sinkhorn(comb.data(), 4, 20, 1e-6f);
  expect_near(comb, golden.floats("simple_comb").data(), 2e-6);
  EXPECT_NEAR(comb[0], 0.52906966, 2e-6);
  EXPECT_NEAR(comb[14], 0.07908195, 2e-6);
}

struct GoldenStep {
  Golden golden{"mhc"};
  std::vector<float> fn;
  Tensor residual = golden.tensor("X");
  Tensor y = golden.tensor("y");
  std::vector<float> scale = golden.floats("scale");
  std::vector<float> base = golden.floats("base");

  GoldenStep() {
    const Tensor code = golden.tensor("fn_code");
    fn.resize(static_cast<size_t>(code.elements()));
    for (size_t i = 0; i < fn.size(); ++i) fn[i] = std::ldexp(1.0f * code.as<int8_t>()[i], -14);
  }

  Coefficients predict(CpuPath path, int64_t row) const {
    const int64_t width = 4 * 5120;
    std::vector<float> x(static_cast<size_t>(width));
    cpu::widen(path, residual.row<Bf16>(row), width, x.data());
    std::vector<float> mix(24);
    for (int64_t o = 0; o < 24; ++o) {
      mix[static_cast<size_t>(o)] = cpu::dot(path, fn.data() + o * width, x.data(), width);
    }
    const float mean = cpu::dot(path, x.data(), x.data(), width) / static_cast<float>(width);
    for (float& m : mix) m *= rsqrt(mean + 1e-20f);
    return coefficients(mix.data(), scale.data(), base.data());
  }
};

TEST(Mhc, PredictsTheGoldenCoefficients) {
  const GoldenStep step;
  for (const CpuPath path : paths_here()) {
    for (int64_t row = 0; row < 3; ++row) {
      const Coefficients c = step.predict(path, row);
      expect_near(c.pre, step.golden.floats("pre").data() + row * 4, 1e-5);
      expect_near(c.post, step.golden.floats("post").data() + row * 4, 1e-5);
      expect_near(c.comb, step.golden.floats("comb").data() + row * 16, 1e-5);
    }
  }
}

TEST(Mhc, CollapsesAndExpandsTheGoldenStreams) {
  const GoldenStep step;
  const int64_t hidden = 5120;
  const auto pre = step.golden.floats("pre_in");
  const auto post = step.golden.floats("post");
  const auto comb = step.golden.floats("comb");
  for (const CpuPath path : paths_here()) {
    std::vector<Bf16> u(static_cast<size_t>(3 * hidden), 0xffff);
    std::vector<Bf16> x(step.residual.as<Bf16>(), step.residual.as<Bf16>() + 12 * hidden);
    std::vector<float> row_u(static_cast<size_t>(hidden), NAN);
    for (int64_t row = 0; row < 3; ++row) {
      Bf16* streams = x.data() + row * 4 * hidden;
      cpu::mhc_collapse_row(path, {row_u.data(), streams, pre.data() + row * 4, 4, hidden});
      cpu::narrow(path, row_u.data(), hidden, u.data() + row * hidden);
      cpu::mhc_expand_row(path, {streams, step.y.row<Bf16>(row), post.data() + row * 4,
                                 comb.data() + row * 16, 4, hidden});
    }
    expect_bf16_near(Tensor::dense(u.data(), DType::kBf16, {3, hidden}), step.golden.tensor("u"), 1,
                     0.01);
    expect_bf16_near(Tensor::dense(x.data(), DType::kBf16, {3, 4, hidden}),
                     step.golden.tensor("X_out"), 1, 0.01);
  }
}

}  // namespace
}  // namespace fathom
