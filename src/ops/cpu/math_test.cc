// Goal: functions within their bounds everywhere. Method: dense grids of floats against long double
// (its own error is far below a float's ulp), and the golden sqrt(softplus) and rotation tables.
#include "base/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "ops/cpu/golden_testing.h"

namespace fathom {
namespace {

// Distance of `found` from `wanted` in ulps of the float nearest to `wanted`.
double ulps(float found, long double wanted) {
  const float nearest = static_cast<float>(wanted);
  if (std::isinf(nearest) || std::isinf(found)) return nearest == found ? 0 : 1e30;
  const long double spacing =
      std::fmax(std::nextafter(std::fabs(nearest), INFINITY) - std::fabs(nearest), 0x1p-149f);
  return static_cast<double>(std::fabs(static_cast<long double>(found) - wanted) / spacing);
}

TEST(Math, ExpIsWithinOneUlp) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0x42d60000u; bits += 211) {
    const float x = std::bit_cast<float>(bits);
    worst = std::fmax(worst, ulps(exp_f32(x), std::exp(static_cast<long double>(x))));
    worst = std::fmax(worst, ulps(exp_f32(-x), std::exp(-static_cast<long double>(x))));
  }
  EXPECT_LE(worst, 1.0);
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-104.5f), 0.0f);
  EXPECT_EQ(exp_f32(-1e30f), 0.0f);
  EXPECT_EQ(exp_f32(-INFINITY), 0.0f);
  EXPECT_EQ(exp_f32(88.8f), INFINITY);
  EXPECT_EQ(exp_f32(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(exp_f32(NAN)));
}

TEST(Math, Log1pIsWithinOneUlp) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 947) {
    const float x = std::bit_cast<float>(bits);
    worst = std::fmax(worst, ulps(log1p_f32(x), std::log1p(static_cast<long double>(x))));
  }
  EXPECT_LE(worst, 0.51);
  EXPECT_EQ(log1p_f32(0.0f), 0.0f);
  EXPECT_EQ(log1p_f32(INFINITY), INFINITY);
}

TEST(Math, LogAndPowInDoubleAreCloseEverywhere) {
  long double worst = 0;
  for (long double x = 1e-300L; x < 1e300L; x *= 1.37L) {
    const auto argument = static_cast<double>(x);
    const long double wanted = std::log(static_cast<long double>(argument));
    worst = std::fmax(worst, std::fabs(log_f64(argument) - wanted) / std::fabs(wanted));
  }
  EXPECT_LE(worst, 5e-16L);
  EXPECT_EQ(log_f64(1.0), 0.0);

  worst = 0;
  for (const double base : {0.5, 2.0, 10.0, 10000.0, 160000.0, 8000000.0, 1e9}) {
    for (double exponent = -3; exponent <= 3; exponent += 1.0 / 256) {
      const long double wanted = std::pow(static_cast<long double>(base), exponent);
      worst = std::fmax(worst, std::fabs(pow_f64(base, exponent) - wanted) / wanted);
    }
    EXPECT_EQ(pow_f64(base, 0.0), 1.0);
  }
  EXPECT_LE(worst, 1e-14L);
}

TEST(Math, SigmoidIsCloseAndSaturates) {
  for (float x = -110.0f; x < 110.0f; x += 0.0137f) {
    const long double wanted = 1.0L / (1.0L + std::exp(-static_cast<long double>(x)));
    if (wanted > 0x1p-126L) {
      ASSERT_LE(ulps(sigmoid(x), wanted), 2.5) << x;
    }
  }
  EXPECT_EQ(sigmoid(0.0f), 0.5f);
  EXPECT_EQ(sigmoid(200.0f), 1.0f);
  EXPECT_EQ(sigmoid(-200.0f), 0.0f);
}

TEST(Math, RsqrtRoundsTwice) {
  EXPECT_EQ(rsqrt(4.0f), 0.5f);
  EXPECT_EQ(rsqrt(1e-20f), 1.0f / std::sqrt(1e-20f));
  EXPECT_EQ(rsqrt(0.0f), INFINITY);
}

TEST(Math, SinCosAreWithinOneUlpUpToTwoMillion) {
  double worst = 0;
  const auto visit = [&worst](float x) {
    float sin = 0;
    float cos = 0;
    sincos_f32(x, &sin, &cos);
    worst = std::fmax(worst, ulps(sin, std::sin(static_cast<long double>(x))));
    worst = std::fmax(worst, ulps(cos, std::cos(static_cast<long double>(x))));
  };
  for (uint32_t bits = 0; bits <= 0x4a000000u; bits += 997) {
    visit(std::bit_cast<float>(bits));
    visit(-std::bit_cast<float>(bits));
  }
  for (int position = 0; position < (1 << 20); position += 3) visit(static_cast<float>(position));
  EXPECT_LE(worst, 0.51);
}

TEST(Math, RotationTablesEqualTheGoldenOnes) {
  const Golden golden("rope");
  const Tensor positions = golden.tensor("positions");
  const struct {
    const char* frequencies;
    const char* table;
  } kinds[] = {{"plain.inv_freq", "plain"},
               {"yarn.inv_freq", "yarn"},
               {"yarn.inv_freq_reciprocal_ramp", "yarn_reciprocal_ramp"}};
  for (const auto& kind : kinds) {
    const auto frequency = golden.floats(kind.frequencies);
    const auto wanted_cos = golden.floats(std::string(kind.table) + ".cos");
    const auto wanted_sin = golden.floats(std::string(kind.table) + ".sin");
    for (size_t i = 0; i < wanted_cos.size(); ++i) {
      const auto p = static_cast<float>(positions.as<int32_t>()[i / 32]);
      float sin = 0;
      float cos = 0;
      sincos_f32(p * frequency[i % 32], &sin, &cos);
      ASSERT_NEAR(cos, wanted_cos[i], 1e-7) << kind.table << " " << i;
      ASSERT_NEAR(sin, wanted_sin[i], 1e-7) << kind.table << " " << i;
    }
  }
}

}  // namespace
}  // namespace fathom
