#pragma once

// Dense FP8 products for many rows, with the bits of dense_decode: the same packed weight, the same
// steps of 32 columns, units and segments in the same order.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "ops/cuda/dense_decode.h"

namespace fathom::cuda {

// Rows of x in the form that the tensor cores read, 128 rows by 128 columns a piece, made once for
// all products that share them.
struct StagedRows {
  const uint8_t* x = nullptr;         // [m, k] E4M3
  const uint8_t* x_scales = nullptr;  // [m, k / 32] E8M0
  int m = 0;
  int k = 0;
  uint8_t* pieces = nullptr;  // staged_bytes(m, k), 128-byte aligned
};
constexpr int kStagedRows = 128;
constexpr int kDensePrefillRows = 65;  // from here on these kernels are the faster ones
constexpr int kStagedPieceBytes = kStagedRows * 128 + kStagedRows * 4;  // codes, then factors
constexpr size_t staged_bytes(int m, int k) {
  return static_cast<size_t>((m + kStagedRows - 1) / kStagedRows) * (k / 128) * kStagedPieceBytes;
}
cudaError_t stage_rows(const StagedRows& rows, cudaStream_t stream);

struct DensePrefill {
  const uint8_t* units = nullptr;   // of pack_dense, [n, k]
  const uint8_t* pieces = nullptr;  // of stage_rows, [m, k]
  uint16_t* out = nullptr;          // [m, n] bf16
  int m = 0;
  int n = 0;         // a multiple of 64
  int k = 0;         // a multiple of 128
  int segments = 0;  // set by the launch
};
cudaError_t dense_prefill(const DensePrefill& product, cudaStream_t stream);

// dense_pair_decode for many rows, with its bits.
struct DensePairPrefill {
  DensePrefill product;       // of a weight packed with an up matrix; its `out` is unused
  uint8_t* codes = nullptr;   // [m, n / 2]
  uint8_t* scales = nullptr;  // [m, n / 64]
  float limit = 0;
};
cudaError_t dense_pair_prefill(const DensePairPrefill& product, cudaStream_t stream);

}  // namespace fathom::cuda
