#pragma once

// A packed FP4 unit (pack.h) as E4M3 fragments of a warpgroup.

#include "ops/cuda/decode_gemm.cuh"

namespace fathom::cuda::decode {

// Eight E2M1 values of one row (pack.h) times 2^(exponent - 6) as E4M3: four columns of each side
// of a step of 32. The table of the eight magnitudes is linear in the exponent, since all are
// normal.
__device__ inline void decode_word(uint32_t word, uint32_t exponent, uint32_t& low,
                                   uint32_t& high) {
  const uint32_t small = exponent * 0x08080800U + 0x0C080000U;
  const uint32_t large = exponent * 0x08080808U + 0x1C181410U;
  const uint32_t magnitudes = word & 0x77777777U;
  low = ptx::permute(small, large, magnitudes) | (word & 0x80808080U);
  high = ptx::permute(small, large, magnitudes >> 16) | ((word << 4) & 0x80808080U);
}

__device__ inline uint32_t byte_of(uint32_t word, uint32_t i) {
  return ptx::permute(word, 0, 0x4440U + i);
}

// `thread` of the warpgroup; the row's factor comes behind the sum of all units.
__device__ inline void fp4_fragments(uint32_t unit, uint32_t thread, Fragments& f) {
  const uint2 exponents = ptx::shared_load8(unit + thread / 4 * 8);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4 v = ptx::shared_load16(unit + 256 + 2048 * half + 16 * thread);
    const int s = 2 * half;
    decode_word(v.x, byte_of(exponents.x, s), f.a[s][0], f.a[s][2]);
    decode_word(v.y, byte_of(exponents.y, s), f.a[s][1], f.a[s][3]);
    decode_word(v.z, byte_of(exponents.x, s + 1), f.a[s + 1][0], f.a[s + 1][2]);
    decode_word(v.w, byte_of(exponents.y, s + 1), f.a[s + 1][1], f.a[s + 1][3]);
  }
  f.lower = 1.F;
  f.upper = 1.F;
}

}  // namespace fathom::cuda::decode
