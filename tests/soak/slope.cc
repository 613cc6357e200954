#include "slope.h"

#include <array>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace fathom {
namespace {

constexpr double kStudent = 2.228;  // 97.5 % of kSlopePieces - 2 degrees of freedom

}  // namespace

Slope slope_of(std::span<const double> values, double seconds_between) {
  const size_t n = values.size() / kSlopePieces;
  FATHOM_CHECK(n >= 2);
  values = values.last(n * kSlopePieces);
  std::array<double, kSlopePieces> means = {};
  for (size_t i = 0; i < means.size(); ++i) {
    const auto piece = values.subspan(i * n, n);
    means[i] = std::accumulate(piece.begin(), piece.end(), 0.0) / static_cast<double>(n);
  }
  const double mean = std::accumulate(means.begin(), means.end(), 0.0) / kSlopePieces;
  constexpr double kMiddle = (kSlopePieces - 1) / 2.0;
  double covariance = 0;
  double variance = 0;
  for (int i = 0; i < kSlopePieces; ++i) {
    covariance += (i - kMiddle) * (means[static_cast<size_t>(i)] - mean);
    variance += (i - kMiddle) * (i - kMiddle);
  }
  const double slope = covariance / variance;
  double rest = 0;
  for (int i = 0; i < kSlopePieces; ++i) {
    const double off = means[static_cast<size_t>(i)] - mean - slope * (i - kMiddle);
    rest += off * off;
  }
  const double half = kStudent * std::sqrt(rest / (kSlopePieces - 2) / variance);
  const double piece_seconds = static_cast<double>(n) * seconds_between;
  return {slope / piece_seconds, (slope - half) / piece_seconds, (slope + half) / piece_seconds};
}

}  // namespace fathom
