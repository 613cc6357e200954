#pragma once

// Rotation of adjacent pairs of the last 2 `half` channels. Source: spec/backbone.md 2.5.

#include <cstdint>

#include "tensor/codecs.h"

namespace fathom::cpu {

// cos and sin of one position, `half` of each.
struct Rotation {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t half = 0;
};

// (u, v) -> (bf(u cos - v sin), bf(u sin + v cos)) in place; products and sums are rounded one by
// one. `sign` -1 rotates back. x: `width` values, the last 2 half of them rotate.
[[gnu::always_inline]] inline void rotate_tail(float* x, int64_t width, const Rotation& rotation,
                                               float sign = 1.0f) {
  float* tail = x + width - 2 * rotation.half;
  for (int64_t j = 0; j < rotation.half; ++j) {
    const float u = tail[2 * j];
    const float v = tail[2 * j + 1];
    const float c = rotation.cos[j];
    const float s = sign * rotation.sin[j];
    tail[2 * j] = round_to_bf16(u * c - v * s);
    tail[2 * j + 1] = round_to_bf16(u * s + v * c);
  }
}

// cos and sin of fp32(position) * inv_freq, one fp32 product.
void rotation_at(int64_t position, const float* inv_freq, int64_t half, float* cos, float* sin);

}  // namespace fathom::cpu
