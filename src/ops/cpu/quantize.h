#pragma once

// The four dynamic quantisers. Source: spec/backbone.md 2.2. Inputs are bf16 values held as fp32.
// All are exact: codes and scales equal the reference bit for bit.

#include <cstdint>

#include "ops/backends.h"

namespace fathom::cpu {

// ActQ8 and SWA8: blocks of 32, E4M3 codes, one E8M0 byte a block. width: multiple of 32.
void quantize_a8(CpuPath path, const float* x, int64_t width, uint8_t* codes, uint8_t* scales);
// IDX4: blocks of 32, packed E2M1, one E8M0 byte a block.
void quantize_idx4(CpuPath path, const float* x, int64_t width, uint8_t* packed, uint8_t* scales);
// KV4: blocks of 16, packed E2M1, one E4M3 byte a block.
void quantize_kv4(CpuPath path, const float* x, int64_t width, uint8_t* packed, uint8_t* scales);

// The values that stand for the codes; exactly representable in bf16.
void dequantize_a8(CpuPath path, const uint8_t* codes, const uint8_t* scales, int64_t width,
                   float* x);
void dequantize_idx4(const uint8_t* packed, const uint8_t* scales, int64_t width, float* x);
void dequantize_kv4(const uint8_t* packed, const uint8_t* scales, int64_t width, float* x);

// The same on the scalar path: every path gives the same bits.
inline void quantize_a8(const float* x, int64_t width, uint8_t* codes, uint8_t* scales) {
  quantize_a8(CpuPath::kScalar, x, width, codes, scales);
}
inline void quantize_idx4(const float* x, int64_t width, uint8_t* packed, uint8_t* scales) {
  quantize_idx4(CpuPath::kScalar, x, width, packed, scales);
}
inline void quantize_kv4(const float* x, int64_t width, uint8_t* packed, uint8_t* scales) {
  quantize_kv4(CpuPath::kScalar, x, width, packed, scales);
}
inline void dequantize_a8(const uint8_t* codes, const uint8_t* scales, int64_t width, float* x) {
  dequantize_a8(CpuPath::kScalar, codes, scales, width, x);
}

}  // namespace fathom::cpu
