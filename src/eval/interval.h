#pragma once

// Figures with their 95 % intervals.

#include <cstdint>
#include <vector>

namespace fathom {

struct Estimate {
  double value = 0;
  double low = 0;
  double high = 0;
  int64_t n = 0;  // what was sampled: windows of text, cases
};

// sum(a) / sum(b) with the normal interval of a ratio of means (delta method); n = a.size().
Estimate ratio_estimate(const std::vector<double>& a, const std::vector<double>& b);

// The mean of independent figures, each of the same weight; n is the sum.
Estimate mean_estimate(const std::vector<Estimate>& parts);

// A share of n trials with Wilson's score interval.
Estimate share_estimate(int64_t n_right, int64_t n);

}  // namespace fathom
