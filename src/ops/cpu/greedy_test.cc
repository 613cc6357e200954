// Goal: greedy takes the largest logit, the smaller id among equals, and moves what the next step
// reads. Method: small rows with ties, NaN and a log that fills.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/backends.h"

namespace fathom {
namespace {

TEST(Greedy, TiesNanLookbackAndLog) {
  const auto ops = std::move(*make_backend({.n_threads = 1}));
  const float nan = std::nanf("");
  std::vector<float> logits = {1, 3, 3, -1, nan, -INFINITY, -5, nan, nan, nan, nan, nan};
  std::vector<int32_t> ids(3, -7);
  std::vector<int32_t> lookback = {10, 11, 12, 20, 21, 22, 30, 31, 32};
  std::vector<int32_t> canonical = {100, 101, 102, 103};
  std::vector<int32_t> log(6, -1);
  std::vector<int64_t> count = {0, 1, 2};
  const GreedyArgs args = {.ids = Tensor::dense(ids.data(), DType::kI32, {3}),
                           .logits = Tensor::dense(logits.data(), DType::kF32, {3, 4}),
                           .lookback = Tensor::dense(lookback.data(), DType::kI32, {3, 3}),
                           .canonical = Tensor::dense(canonical.data(), DType::kI32, {4}),
                           .log = Tensor::dense(log.data(), DType::kI32, {3, 2}),
                           .count = Tensor::dense(count.data(), DType::kI64, {3})};
  ops->greedy(args);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 2, 0}));
  EXPECT_EQ(lookback, (std::vector<int32_t>{101, 10, 11, 102, 20, 21, 100, 30, 31}));
  EXPECT_EQ(log, (std::vector<int32_t>{1, -1, -1, 2, -1, -1}));
  EXPECT_EQ(count, (std::vector<int64_t>{1, 2, 2}));
}

}  // namespace
}  // namespace fathom
