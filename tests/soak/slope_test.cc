// Goal: a growth is found, and noise is not taken for one. Method: lines with and without noise
// whose neighbours are alike.
#include "slope.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace fathom {
namespace {

// Noise that forgets half of itself in two values.
std::vector<double> noisy(uint32_t seed, double growth) {
  std::mt19937 random(seed);
  std::normal_distribution<double> step(0, 1);
  std::vector<double> values;
  double noise = 0;
  for (int i = 0; i < 270; ++i) {
    noise = 0.7 * noise + step(random);
    values.push_back(1000 + growth * i + noise);
  }
  return values;
}

TEST(Slope, OfALineIsItsOwn) {
  std::vector<double> values;
  for (int i = 0; i < 120; ++i) values.push_back(5 + 3 * i);
  const Slope slope = slope_of(values, 10);
  EXPECT_NEAR(slope.per_second, 0.3, 1e-12);
  EXPECT_NEAR(slope.low, 0.3, 1e-9);
  EXPECT_NEAR(slope.high, 0.3, 1e-9);
}

TEST(Slope, HoldsWhatIsTrueNineTimesInTen) {
  int n_zero = 0;
  int n_found = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Slope still = slope_of(noisy(seed, 0), 10);
    n_zero += still.low <= 0 && 0 <= still.high ? 1 : 0;
    n_found += slope_of(noisy(seed, 0.05), 10).low > 0 ? 1 : 0;
  }
  EXPECT_GE(n_zero, 180);
  EXPECT_GE(n_found, 195);
}

}  // namespace
}  // namespace fathom
