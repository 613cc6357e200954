// Goal: what eviction takes for the cost of a block is the cost. Method: the released plan against
// figures that were counted by hand, operator by operator.
#include "engine/block_cost.h"

#include <gtest/gtest.h>

#include "model/plans.h"

namespace fathom {
namespace {

TEST(BlockCost, OfAReleasedTokenIsWhatTheSpecificationCounts) {
  const TokenCost cost = encoder_cost(*named_plan("released"));
  // Streams, projections in and out, gate, experts of 20 layers; attention, of two layers without
  // global entries a fifth; compressors; index queries of three layers; two Engram modules.
  const double layer = 2 * 1.23e6 + 18.35e6 + 83.9e6 + 67.1e6 + 83.9e6 + 3.9e6 + 424.7e6 + 70.8e6;
  const double wanted =
      20 * layer + 18 * 83.9e6 + 2 * 83.9e6 / 5 + 3 * 10.5e6 + 5.2e6 + 3 * 10.83e6 + 2 * 314.6e6;
  EXPECT_NEAR(cost.first, wanted, 2e-3 * wanted);
  // 8,192 an index entry, three layers with an entry for two tokens.
  EXPECT_EQ(cost.slope, 3 * 8192 / 2.0);
}

TEST(BlockCost, OfABlockIsThatOfItsTokens) {
  const TokenCost token = {.first = 1000, .slope = 2};
  const BlockCost block = block_cost(token);
  for (const int64_t depth : {0, 1, 17}) {
    double sum = 0;
    for (int64_t i = 0; i < kBlockTokens; ++i) {
      sum += token.first + token.slope * static_cast<double>(depth * kBlockTokens + i);
    }
    EXPECT_DOUBLE_EQ(block.first + block.slope * static_cast<double>(depth), sum);
  }
}

}  // namespace
}  // namespace fathom
