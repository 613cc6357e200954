#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/math.h"

namespace fathom {
namespace {

// The dimension, as a real number, whose wave turns `rotations` times over the original length.
double yarn_dimension(double rotations, int64_t width, double base, const RopeScaling& scaling) {
  const auto length = static_cast<double>(scaling.original_max_position_embeddings);
  return static_cast<double>(width) * log_f64(length / (2 * std::numbers::pi * rotations)) /
         (2 * log_f64(base));
}

}  // namespace

std::vector<float> rope_frequencies(const TextConfig& text, bool yarn) {
  const int64_t width = text.qk_rope_head_dim;
  const double base = yarn ? text.compress_rope_theta : text.rope_theta;
  std::vector<float> frequencies;
  for (int64_t j = 0; j < width / 2; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(width);
    frequencies.push_back(1.0f / static_cast<float>(pow_f64(base, exponent)));
  }
  if (!yarn) return frequencies;

  const RopeScaling& scaling = text.rope_scaling;
  const auto last = static_cast<double>(width - 1);
  const auto edge = [&](double rotations) {
    return yarn_dimension(rotations, width, base, scaling);
  };
  const double low = std::clamp(std::floor(edge(scaling.beta_fast)), 0.0, last);
  double high = std::clamp(std::ceil(edge(scaling.beta_slow)), 0.0, last);
  if (low == high) high += 0.001;
  const float reciprocal = 1.0f / static_cast<float>(high - low);
  for (size_t j = 0; j < frequencies.size(); ++j) {
    const float ramp =
        std::clamp((static_cast<float>(j) - static_cast<float>(low)) * reciprocal, 0.0f, 1.0f);
    const float smooth = 1.0f - ramp;
    const float f = frequencies[j];
    frequencies[j] = f / static_cast<float>(scaling.factor) * (1.0f - smooth) + f * smooth;
  }
  return frequencies;
}

}  // namespace fathom
