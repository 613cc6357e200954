#pragma once

// Products of rows by their BF16 values on tensor cores, for any number of rows: the head, and the
// grouped output projection. Sums are those of the tensor core over all columns in order, 16 a step
// (docs/kernels/prefill.md), whatever the number of rows.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace fathom::cuda {

// A weight [n, k] as BF16, n and k multiples of 64: units [n / 64][k / 64] of 64 rows by 128 bytes
// in the 128-byte swizzle (wgmma.cuh). From BF16 values, or from E4M3 codes with one E8M0 scale a
// block of 32 x 32, which BF16 holds exactly where no value falls below 2^-126.
struct PackValues {
  const uint16_t* values = nullptr;  // or:
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  int n = 0;
  int k = 0;
  uint8_t* units = nullptr;
};
constexpr int kValueUnitBytes = 64 * 128;
constexpr size_t value_bytes(int n, int k) {
  return static_cast<size_t>(n / 64) * (k / 64) * kValueUnitBytes;
}
cudaError_t pack_values(const PackValues& weight, cudaStream_t stream);

// Group g of a row of x, k wide, meets rows g n / groups .. (g + 1) n / groups of the weight.
struct ValueProduct {
  const uint8_t* units = nullptr;
  const uint16_t* x = nullptr;  // [m, groups k], 16-byte aligned rows
  int64_t x_stride = 0;         // elements
  uint8_t* pieces = nullptr;    // value_piece_bytes(m, groups k), 128-byte aligned
  float* out = nullptr;         // [m, n], or
  uint16_t* out_bf16 = nullptr;
  int64_t out_stride = 0;
  int m = 0;
  int n = 0;  // a group's outputs are a multiple of 64
  int k = 0;
  int groups = 1;
};
// Room for rows of x in the form that the tensor cores read.
constexpr size_t value_piece_bytes(int m, int64_t width) {
  return static_cast<size_t>((m + 127) / 128 * 128) * static_cast<size_t>(width) * 2;
}
cudaError_t value_product(const ValueProduct& product, cudaStream_t stream);

}  // namespace fathom::cuda
