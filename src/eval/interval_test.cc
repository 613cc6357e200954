#include "eval/interval.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fathom {
namespace {

// Wilson's interval for 15 of 20 and 0 of 10 at 95 %, from its closed form by hand.
TEST(Interval, AShareHasWilsonsInterval) {
  const Estimate most = share_estimate(15, 20);
  EXPECT_DOUBLE_EQ(most.value, 0.75);
  EXPECT_NEAR(most.low, 0.5313, 5e-4);
  EXPECT_NEAR(most.high, 0.8881, 5e-4);
  const Estimate none = share_estimate(0, 10);
  EXPECT_DOUBLE_EQ(none.low, 0);
  EXPECT_NEAR(none.high, 0.2775, 5e-4);
}

TEST(Interval, ARatioOfEqualPartsHasNoWidth) {
  const Estimate same = ratio_estimate({2, 4, 6}, {1, 2, 3});
  EXPECT_DOUBLE_EQ(same.value, 2);
  EXPECT_NEAR(same.high - same.low, 0, 1e-12);
  EXPECT_EQ(same.n, 3);
  const Estimate spread = ratio_estimate({2, 4, 9}, {1, 2, 3});
  EXPECT_DOUBLE_EQ(spread.value, 2.5);
  EXPECT_LT(spread.low, 2.5);
  EXPECT_GT(spread.high, 2.5);
}

TEST(Interval, AMeanOfTwoIsNarrowerByTheRootOfTwo) {
  const Estimate mean = mean_estimate({{.value = 1, .low = 0.8, .high = 1.2, .n = 4},
                                       {.value = 2, .low = 1.8, .high = 2.2, .n = 6}});
  EXPECT_DOUBLE_EQ(mean.value, 1.5);
  EXPECT_EQ(mean.n, 10);
  EXPECT_NEAR(mean.high - mean.low, 0.4 / std::sqrt(2.0), 1e-12);
}

}  // namespace
}  // namespace fathom
