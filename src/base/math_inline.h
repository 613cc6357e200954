#pragma once

// Bodies of functions that hot loops inline, so that a compiler vectorises them for the path the
// loop is compiled for. Branch-free; the same operations in the same order everywhere.

#include <bit>
#include <cstdint>

namespace fathom {

// exp by x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial of degree 7, and 2^n in two factors, so
// that results below 2^-126 round once more at most and results above the largest float are inf.
[[gnu::always_inline]] inline float exp_f32_inline(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  // Adding 1.5 2^23 puts the nearest integer into the low mantissa bits.
  const float shifted = __builtin_fmaf(x, 0x1.715476p+0f, 0x1.8p23f);
  const float n = shifted - 0x1.8p23f;
  float r = __builtin_fmaf(n, -0x1.62e4p-1f, x);
  r = __builtin_fmaf(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.a01a02p-13f;
  p = __builtin_fmaf(p, r, 0x1.6c16c2p-10f);
  p = __builtin_fmaf(p, r, 0x1.111112p-7f);
  p = __builtin_fmaf(p, r, 0x1.555556p-5f);
  p = __builtin_fmaf(p, r, 0x1.555556p-3f);
  p = __builtin_fmaf(p, r, 0.5f);
  // 1 + r splits without error into head and tail, and the small terms meet the tail.
  const float head = 1.0f + r;
  const float tail = (1.0f - head) + r;
  p = head + __builtin_fmaf(p, r * r, tail);
  const int32_t exponent =
      static_cast<int32_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0x1.8p23f));
  const int32_t half = exponent >> 1;
  const float low = std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23);
  const float high = std::bit_cast<float>(static_cast<uint32_t>(exponent - half + 127) << 23);
  return p * low * high;
}

}  // namespace fathom
