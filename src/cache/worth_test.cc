// Goal: the rule counts uses as far as it says. Method: its figures.
#include "cache/worth.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

TEST(RecomputeWorth, CountsTheSecondUseAndNoneAfterIt) {
  const WorthRule& rule = kRecomputeWorth;
  EXPECT_EQ(rule.gain(1, 3), 3);
  EXPECT_EQ(rule.gain(2, 3), 6);
  EXPECT_EQ(rule.gain(50, 3), 6);
  EXPECT_EQ(rule.base(7), 7);
}

}  // namespace
}  // namespace fathom
