#pragma once

// The arithmetic of the router. Source: spec/backbone.md 3.10.

#include <cstdint>

namespace fathom::cpu {

// sqrt(softplus(v)), softplus(v) = v above 20.
float sqrt_softplus(float v);

// The k best of score + bias, larger first, ties to the smaller id; weights from the unbiased
// scores, summed in that order: fp32(score / (sum + 1e-20)) * scale.
struct RouteRow {
  int32_t* ids = nullptr;    // [k]
  float* weights = nullptr;  // [k]
  const float* scores = nullptr;
  const float* bias = nullptr;
  float* biased = nullptr;  // [n_experts], work space
  int64_t n_experts = 0;
  int64_t k = 0;
  float scale = 1.0f;
};
void route_row(const RouteRow& args);

}  // namespace fathom::cpu
