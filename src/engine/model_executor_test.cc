// Goal: the log probabilities beside a token. Method: random logits against a sort of them all.
#include "engine/model_executor.h"

#include <gtest/gtest.h>

#include <random>

namespace fathom {
namespace {

TEST(TopLogProbabilities, AreThoseOfASortOfAll) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  std::uniform_int_distribution<int> level(-20, 20);  // few levels: many ties
  for (int round = 0; round < 50; ++round) {
    std::vector<float> logits(1 + rng() % 40);
    for (float& logit : logits) logit = 0.25F * static_cast<float>(level(rng));
    std::vector<int32_t> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    for (const int64_t n : {0, 1, 5, 20}) {
      const std::vector<TokenLogprob> top = top_log_probabilities(logits, n);
      ASSERT_EQ(top.size(), std::min(order.size(), static_cast<size_t>(n)));
      for (size_t i = 0; i < top.size(); ++i) {
        EXPECT_EQ(top[i].id, order[i]);
        EXPECT_EQ(top[i].logprob, log_probability(logits, order[i]));
      }
    }
  }
}

}  // namespace
}  // namespace fathom
