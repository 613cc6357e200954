#pragma once

// Number formats and functions inside the fast kernels. exp_f32 and sigmoid are base/math.h on the
// device; every operation is named, so that no compiler flag fuses or splits one.

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace fathom::cuda::fast {

__device__ inline float widen(uint32_t bf16) { return __uint_as_float(bf16 << 16); }
__device__ inline uint32_t narrow(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
__device__ inline float rounded_bf16(float value) { return widen(narrow(value)); }
__device__ inline uint32_t narrow2(float low, float high) {
  return narrow(low) | (narrow(high) << 16);
}

// 2^(code - 127).
__device__ inline float power(uint32_t e8m0) {
  return e8m0 == 0 ? 0x1p-127F : __uint_as_float(e8m0 << 23);
}

__device__ inline float exp_f32(float x) {
  x = fminf(fmaxf(x, -104.0F), 89.0F);
  const float shifted = __fmaf_rn(x, 0x1.715476p+0F, 0x1.8p23F);
  const float n = __fsub_rn(shifted, 0x1.8p23F);
  float r = __fmaf_rn(n, -0x1.62e4p-1F, x);
  r = __fmaf_rn(n, -0x1.7f7d1cp-20F, r);
  float p = 0x1.a01a02p-13F;
  p = __fmaf_rn(p, r, 0x1.6c16c2p-10F);
  p = __fmaf_rn(p, r, 0x1.111112p-7F);
  p = __fmaf_rn(p, r, 0x1.555556p-5F);
  p = __fmaf_rn(p, r, 0x1.555556p-3F);
  p = __fmaf_rn(p, r, 0.5F);
  const float head = __fadd_rn(1.0F, r);
  const float tail = __fadd_rn(__fsub_rn(1.0F, head), r);
  p = __fadd_rn(head, __fmaf_rn(p, __fmul_rn(r, r), tail));
  const int exponent = static_cast<int>(__float_as_uint(shifted) - __float_as_uint(0x1.8p23F));
  const int half = exponent >> 1;
  const float low = __uint_as_float(static_cast<uint32_t>(half + 127) << 23);
  const float high = __uint_as_float(static_cast<uint32_t>(exponent - half + 127) << 23);
  return __fmul_rn(__fmul_rn(p, low), high);
}
__device__ inline float sigmoid(float x) { return __fdiv_rn(1.0F, __fadd_rn(1.0F, exp_f32(-x))); }

// silu(min(gate, limit)) clamp(up, -limit, limit) weight, rounded to bf16 (spec/backbone.md 3.10).
__device__ inline float swiglu(float gate, float up, float limit, float weight) {
  gate = fminf(gate, limit);
  up = fminf(fmaxf(up, -limit), limit);
  const float silu = __fmul_rn(gate, sigmoid(gate));
  return rounded_bf16(__fmul_rn(weight, __fmul_rn(silu, up)));
}

// The E8M0 code of an A8 block whose largest magnitude is `amax` (spec/backbone.md 2.2).
__device__ inline uint32_t a8_scale(float amax) {
  const float t = __fmul_rn(fmaxf(amax, 1e-4F), __uint_as_float(0x3B124925U));
  const uint32_t bits = __float_as_uint(t);
  return (bits >> 23) + ((bits & 0x7FFFFFU) != 0 ? 1 : 0);
}
// Four E4M3 codes of values already divided by their scale.
__device__ inline uint32_t e4m3x4(float a, float b, float c, float d) {
  const uint32_t low = __nv_cvt_float2_to_fp8x2(float2{a, b}, __NV_SATFINITE, __NV_E4M3);
  const uint32_t high = __nv_cvt_float2_to_fp8x2(float2{c, d}, __NV_SATFINITE, __NV_E4M3);
  return low | (high << 16);
}
__device__ inline float2 from_e4m3x2(uint32_t codes) {
  const __half2_raw h =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3);
  return __half22float2(__half2(h));
}

// Four E4M3 codes times 2^-shift, nearest even: exact unless a result falls below 2^-6.
__device__ inline uint32_t lowered_e4m3x4(uint32_t codes, uint32_t shift) {
  const float factor = power(127U - min(shift, 40U));
  const float2 low = from_e4m3x2(codes & 0xFFFFU);
  const float2 high = from_e4m3x2(codes >> 16);
  return e4m3x4(low.x * factor, low.y * factor, high.x * factor, high.y * factor);
}

// Four E4M3 codes times 2^shift, which must not leave the format above; below as lowered_e4m3x4.
__device__ inline uint32_t moved_e4m3x4(uint32_t codes, int shift) {
  const float factor = power(static_cast<uint32_t>(127 + max(shift, -40)));
  const float2 low = from_e4m3x2(codes & 0xFFFFU);
  const float2 high = from_e4m3x2(codes >> 16);
  return e4m3x4(low.x * factor, low.y * factor, high.x * factor, high.y * factor);
}

}  // namespace fathom::cuda::fast
