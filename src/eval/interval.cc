#include "eval/interval.h"

#include <cmath>
#include <numeric>

#include "base/check.h"

namespace fathom {
namespace {

constexpr double kZ = 1.959964;  // 97.5 % point of the normal distribution

}  // namespace

Estimate ratio_estimate(const std::vector<double>& a, const std::vector<double>& b) {
  FATHOM_CHECK(a.size() == b.size() && !a.empty());
  const auto n = static_cast<double>(a.size());
  const double total_b = std::accumulate(b.begin(), b.end(), 0.0);
  const double ratio = std::accumulate(a.begin(), a.end(), 0.0) / total_b;
  double square = 0;
  for (size_t i = 0; i < a.size(); ++i) square += std::pow(a[i] - ratio * b[i], 2);
  const double deviation = n > 1 ? std::sqrt(square * n / (n - 1)) / total_b : INFINITY;
  return {.value = ratio,
          .low = ratio - kZ * deviation,
          .high = ratio + kZ * deviation,
          .n = static_cast<int64_t>(a.size())};
}

Estimate mean_estimate(const std::vector<Estimate>& parts) {
  FATHOM_CHECK(!parts.empty());
  Estimate mean;
  double squares = 0;
  for (const Estimate& part : parts) {
    mean.value += part.value;
    mean.n += part.n;
    const double half = (part.high - part.low) / 2;
    squares += half * half;
  }
  const auto n = static_cast<double>(parts.size());
  mean.value /= n;
  mean.low = mean.value - std::sqrt(squares) / n;
  mean.high = mean.value + std::sqrt(squares) / n;
  return mean;
}

Estimate share_estimate(int64_t n_right, int64_t n) {
  FATHOM_CHECK(0 < n && n_right <= n);
  const auto count = static_cast<double>(n);
  const double share = static_cast<double>(n_right) / count;
  const double scale = 1 + kZ * kZ / count;
  const double centre = (share + kZ * kZ / (2 * count)) / scale;
  const double half =
      kZ * std::sqrt(share * (1 - share) / count + kZ * kZ / (4 * count * count)) / scale;
  return {.value = share, .low = centre - half, .high = centre + half, .n = n};
}

}  // namespace fathom
