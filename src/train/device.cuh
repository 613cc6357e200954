#pragma once

// Small device helpers shared by the kernels.

#include <cuda_bf16.h>

#include <cstdint>

namespace fathom::train::gpu {

constexpr unsigned kFull = 0xFFFFFFFFU;
constexpr float kRmsEps = 1e-20F;

__device__ inline float widen(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
__device__ inline uint16_t narrow(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
__device__ inline float round_bf16(float value) { return widen(narrow(value)); }

__device__ inline float warp_sum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    v += __shfl_xor_sync(kFull, v, offset);
  }
  return v;
}
__device__ inline float warp_max(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    v = fmaxf(v, __shfl_xor_sync(kFull, v, offset));
  }
  return v;
}

// Four bf16 values, eight bytes.
__device__ inline void load4(const uint16_t* p, float* out) {
  const uint2 v = *reinterpret_cast<const uint2*>(p);
  out[0] = __uint_as_float(v.x << 16);
  out[1] = __uint_as_float(v.x & 0xFFFF0000U);
  out[2] = __uint_as_float(v.y << 16);
  out[3] = __uint_as_float(v.y & 0xFFFF0000U);
}
__device__ inline void store4(uint16_t* p, const float* in) {
  uint2 v;
  v.x = narrow(in[0]) | (static_cast<uint32_t>(narrow(in[1])) << 16);
  v.y = narrow(in[2]) | (static_cast<uint32_t>(narrow(in[3])) << 16);
  *reinterpret_cast<uint2*>(p) = v;
}

// Eight bf16 values, sixteen bytes.
__device__ inline void unpack8(const uint4& v, float* out) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = __uint_as_float(words[i] << 16);
    out[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
  }
}
__device__ inline void load8(const uint16_t* p, float* out) {
  unpack8(*reinterpret_cast<const uint4*>(p), out);
}
__device__ inline void store8(uint16_t* p, const float* in) {
  uint4 v;
  uint32_t* words = reinterpret_cast<uint32_t*>(&v);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = narrow(in[2 * i]) | (static_cast<uint32_t>(narrow(in[2 * i + 1])) << 16);
  }
  *reinterpret_cast<uint4*>(p) = v;
}

__device__ inline float sigmoid(float v) { return 1.0F / (1.0F + __expf(-v)); }

// Rows of a persistent grid, one warp a row.
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
inline int persistent_grid(int64_t rows) {
  const int64_t blocks = (rows + kWarps - 1) / kWarps;
  return static_cast<int>(blocks < 132 * 6 ? blocks : 132 * 6);
}
inline int full_grid(int64_t items, int per_block) {
  return static_cast<int>((items + per_block - 1) / per_block);
}

}  // namespace fathom::train::gpu
