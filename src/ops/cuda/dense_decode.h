#pragma once

// Dense FP8 products for few rows: out = x W^T with a packed weight (pack.h) and A8 rows.

#include <cuda_runtime.h>

#include <cstdint>

namespace fathom::cuda {

struct DenseDecode {
  const uint8_t* units = nullptr;     // of pack_dense, [n, k]
  const uint8_t* x = nullptr;         // [m, k] E4M3, as the A8 quantiser writes them
  const uint8_t* x_scales = nullptr;  // [m, k / 32] E8M0
  uint16_t* out = nullptr;            // [m, n] bf16
  int m = 0;                          // any; made for up to 128
  int n = 0;                          // a multiple of 64
  int k = 0;                          // a multiple of 128
};

// The bits of an output row depend on that row and the weight only, not on m or other rows. x is
// rebased to one exponent per 128 columns on the way in, which is exact unless a value falls more
// than 2^-6 448 times below the largest of its 128 (docs/kernels/decode.md).
cudaError_t dense_decode(const DenseDecode& product, cudaStream_t stream);

// For a weight packed with an up matrix: out of the pair as A8 of bf(silu(gate) up) with the limit
// of spec/backbone.md 3.10 and weight 1: codes [m, n / 2], scales [m, n / 64].
struct DensePairDecode {
  DenseDecode product;  // n counts the rows of both matrices; its `out` is unused
  uint8_t* codes = nullptr;
  uint8_t* scales = nullptr;
  float limit = 0;
  int segments = 0;  // set by the launch
};
cudaError_t dense_pair_decode(const DensePairDecode& product, cudaStream_t stream);

}  // namespace fathom::cuda
