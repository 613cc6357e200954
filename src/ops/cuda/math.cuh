#pragma once

// The functions of base/math.h and the quantisers of ops/cpu/quantize.h on the device: the same
// operations in the same order, so the same bits. Compiled with --fmad=false: fused only where
// __fmaf_rn or __fma_rn stands. Codecs are those of tensor/codecs.h.

#include <cstdint>

#include "tensor/codecs.h"

namespace fathom::cuda {

inline constexpr unsigned kFullWarp = 0xffffffffu;

__device__ inline float exp_f32(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float shifted = __fmaf_rn(x, 0x1.715476p+0f, 0x1.8p23f);
  const float n = shifted - 0x1.8p23f;
  float r = __fmaf_rn(n, -0x1.62e4p-1f, x);
  r = __fmaf_rn(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.a01a02p-13f;
  p = __fmaf_rn(p, r, 0x1.6c16c2p-10f);
  p = __fmaf_rn(p, r, 0x1.111112p-7f);
  p = __fmaf_rn(p, r, 0x1.555556p-5f);
  p = __fmaf_rn(p, r, 0x1.555556p-3f);
  p = __fmaf_rn(p, r, 0.5f);
  const float head = 1.0f + r;
  const float tail = (1.0f - head) + r;
  p = head + __fmaf_rn(p, r * r, tail);
  const int32_t exponent =
      static_cast<int32_t>(__float_as_uint(shifted) - __float_as_uint(0x1.8p23f));
  const int32_t half = exponent >> 1;
  const float low = __uint_as_float(static_cast<uint32_t>(half + 127) << 23);
  const float high = __uint_as_float(static_cast<uint32_t>(exponent - half + 127) << 23);
  return p * low * high;
}

__device__ inline float sigmoid(float x) { return __fdiv_rn(1.0f, 1.0f + exp_f32(-x)); }
__device__ inline float inverse_root(float x) { return __fdiv_rn(1.0f, __fsqrt_rn(x)); }

__device__ inline float log1p_f32(float x) {
  const double u = 1.0 + static_cast<double>(x);
  if (!(u < 0x1p200)) return x;
  int k = 0;
  double f = x;
  if (u >= 0x1.6a09e667f3bcdp+0) {
    const double m = 2.0 * frexp(u, &k);
    k -= 1;
    f = m - 1.0;
    if (m >= 0x1.6a09e667f3bcdp+0) {
      f = 0.5 * m - 1.0;
      k += 1;
    }
  }
  const double s = __ddiv_rn(f, 2.0 + f);
  const double z = s * s;
  double p = 1.0 / 21.0;
#pragma unroll
  for (int i = 19; i >= 3; i -= 2) p = __fma_rn(p, z, 1.0 / i);
  const double log_f = 2.0 * __fma_rn(s * z, p, s);
  return static_cast<float>(__fma_rn(static_cast<double>(k), 0x1.62e42fefa39efp-1, log_f));
}

__device__ inline void sincos_f32(float x, float* sin, float* cos) {
  const double wide = x;
  const double shifted = __fma_rn(wide, 0x1.45f306dc9c883p-1, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  double r = __fma_rn(n, -0x1.921fb54442d18p+0, wide);
  r = __fma_rn(n, -0x1.1a62633145c07p-54, r);
  const double z = r * r;

  double s = -1.0 / 1307674368000.0;
  s = __fma_rn(s, z, 1.0 / 6227020800.0);
  s = __fma_rn(s, z, -1.0 / 39916800.0);
  s = __fma_rn(s, z, 1.0 / 362880.0);
  s = __fma_rn(s, z, -1.0 / 5040.0);
  s = __fma_rn(s, z, 1.0 / 120.0);
  s = __fma_rn(s, z, -1.0 / 6.0);
  s = __fma_rn(s * z, r, r);

  double c = 1.0 / 20922789888000.0;
  c = __fma_rn(c, z, -1.0 / 87178291200.0);
  c = __fma_rn(c, z, 1.0 / 479001600.0);
  c = __fma_rn(c, z, -1.0 / 3628800.0);
  c = __fma_rn(c, z, 1.0 / 40320.0);
  c = __fma_rn(c, z, -1.0 / 720.0);
  c = __fma_rn(c, z, 1.0 / 24.0);
  c = __fma_rn(c, z, -0.5);
  c = __fma_rn(c, z, 1.0);

  const auto quadrant = static_cast<unsigned>(__double_as_longlong(shifted) & 3);
  const double first = quadrant % 2 == 0 ? s : c;
  const double second = quadrant % 2 == 0 ? c : s;
  *sin = static_cast<float>(quadrant >= 2 ? -first : first);
  *cos = static_cast<float>(quadrant == 1 || quadrant == 2 ? -second : second);
}

// E2M1's three magnitude bits on a float's exponent and mantissa, bias moved by the product.
__device__ inline float decode_e2m1(unsigned code) {
  const float magnitude = __uint_as_float((code & 7u) << 22) * 0x1p126f;
  return __uint_as_float(__float_as_uint(magnitude) | (code & 8u) << 28);
}

// ---- the summation tree (ops/cpu/dot.h): 16 neighbouring lanes are its virtual lanes ----

// acc_j + (a[j + 16] b[j + 16] fused onto a[j] b[j]); `low` and `high` are elements j and j + 16.
__device__ inline float add_pair(float acc, float2 a, float2 b) {
  return acc + __fmaf_rn(a.y, b.y, a.x * b.x);
}

// Folds 8, 4, 2, 1; the sum is in lane 0 of each 16. All lanes of the warp call it.
__device__ inline float fold_lanes(float acc) {
#pragma unroll
  for (int width = 8; width > 0; width /= 2) {
    acc = acc + __shfl_down_sync(kFullWarp, acc, width, 16);
  }
  return acc;
}

// ---- quantisers: a lane holds one element of its block ----

__device__ inline uint32_t finite_magnitude(float x) {
  const uint32_t magnitude = __float_as_uint(x) & 0x7fffffffu;
  return magnitude <= 0x7f800000u ? magnitude : 0u;
}

// A8 of 32 lanes. Every lane gets its code and the block's scale byte.
struct A8Code {
  uint8_t code;
  uint8_t scale;
};
__device__ inline A8Code quantize_a8(float x) {
  float amax = __uint_as_float(__reduce_max_sync(kFullWarp, finite_magnitude(x)));
  amax = amax < 1e-4f ? 1e-4f : amax;
  const float scale = power_of_two_ceil(amax * __uint_as_float(0x3B124925u));
  const float inverse = __fdiv_rn(1.0f, scale);
  return {float_to_e4m3(x * inverse), power_of_two_to_e8m0(scale)};
}
__device__ inline float dequantize_a8(A8Code q) {
  return e4m3_to_float(q.code) * e8m0_to_float(q.scale);
}

// IDX4 of 32 lanes: an E2M1 code and the block's scale byte.
__device__ inline A8Code quantize_idx4(float x) {
  float amax = __uint_as_float(__reduce_max_sync(kFullWarp, finite_magnitude(x)));
  amax = amax < 6 * 0x1p-126f ? 6 * 0x1p-126f : amax;
  const float scale = power_of_two_ceil(amax * __uint_as_float(0x3E2AAAABu));
  return {float_to_e2m1(x * __fdiv_rn(1.0f, scale)), power_of_two_to_e8m0(scale)};
}

// KV4 of 16 lanes: an E2M1 code and the block's E4M3 scale. All lanes of the warp call it.
__device__ inline A8Code quantize_kv4(float x) {
  uint32_t top = finite_magnitude(x);
#pragma unroll
  for (int width = 8; width > 0; width /= 2) {
    const uint32_t other = __shfl_xor_sync(kFullWarp, top, width, 16);
    top = other > top ? other : top;
  }
  float amax = __uint_as_float(top);
  amax = amax < 6 * 0x1p-9f ? 6 * 0x1p-9f : amax;
  const uint8_t code = float_to_e4m3(__fdiv_rn(amax, 6.0f));
  return {float_to_e2m1(__fdiv_rn(x, e4m3_to_float(code))), code};
}

// Packs the codes of neighbouring lanes; the byte is in the even one.
__device__ inline uint8_t pack_pair(uint8_t code) {
  const unsigned next = __shfl_down_sync(kFullWarp, static_cast<unsigned>(code), 1);
  return static_cast<uint8_t>(code | next << 4);
}

}  // namespace fathom::cuda
