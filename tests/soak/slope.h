#pragma once

// Whether something that is looked at again and again grows.

#include <span>

namespace fathom {

struct Slope {
  double per_second = 0;
  double low = 0;  // 95 % interval
  double high = 0;
};

// The straight line through the means of kSlopePieces equal pieces of the values, which were taken
// at equal distances: neighbours in time are not independent, and of means of pieces that matters
// less. Least squares, the interval of Student's t. At least two values a piece.
inline constexpr int kSlopePieces = 12;
Slope slope_of(std::span<const double> values, double seconds_between);

}  // namespace fathom
