#pragma once

// Load time: weights of the released checkpoint into the order and the exponents that the decode
// and prefill kernels read (docs/kernels/decode.md). Nothing here runs in a step.
//
// Rebasing (docs/kernels/decode.md): the tensor cores of sm_90 have no scale input, so the power of
// two of a block moves into the elements' exponents: a group has one exponent, the lowest that
// leaves its values inside the format. Elements that fall below E4M3's 2^-6 on the way may lose
// bits; every changed value is counted, and the loader keeps the exact kernel for a weight that
// exceeds its limit.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace fathom::cuda {

// Rows of one packed tile and columns of one unit.
constexpr int kPackedRows = 64;
constexpr int kUnitColumns = 128;

// A weight [n, k] of E4M3 codes with one E8M0 scale per 32 x 32; n a multiple of 64, k of 128.
// With `up`, a gate and an up matrix [n / 2, k] each: tile T holds rows 32 T .. 32 T + 31 of both,
// the gate's in rows g of each sixteen, the up matrix's in rows g + 8, so that a pair meets in one
// thread's registers.
//
// units [n / 64][k / 128] of 8,208 bytes: a header of 16 bytes, then A fragments [4 steps of 32
// columns][4 warps][32 lanes][16 bytes]. The header's first two bytes are the E8M0 exponents of
// rows 0..31 and 32..63 of the tile, or with `up` of the gate's and the up matrix's rows: the group
// that shares one exponent is 32 rows by 128 columns.
struct PackDense {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* up_codes = nullptr;
  const uint8_t* up_scales = nullptr;
  int n = 0;
  int k = 0;
  uint8_t* units = nullptr;               // dense_bytes(n, k)
  unsigned long long* changed = nullptr;  // on the device; values that changed are added to it
};
constexpr int kUnitHeader = 16;
constexpr int kDenseUnitBytes = kUnitHeader + kPackedRows * kUnitColumns;
constexpr size_t dense_bytes(int n, int k) {
  return static_cast<size_t>(n / kPackedRows) * (k / kUnitColumns) * kDenseUnitBytes;
}
cudaError_t pack_dense(const PackDense& weight, cudaStream_t stream);

// A weight [n, k] of E2M1 codes, two a byte, with one E8M0 scale per row and 32 columns; n a
// multiple of 64, k of 128. With `up` rows pair as above.
//
// units [n / 64][k / 128] of 4,352 bytes: 256 bytes of exponents, then [2 halves of 64 columns]
// [4 warps][32 lanes][16 bytes]. An exponent is 1..12, the power of two above 2^-18 by which the
// row's E2M1 values of a group of 32 columns are multiplied when they become E4M3 (12 for the
// group with the row's largest scale); order [4 warps][8 g][row g: 4 groups, row g + 8: 4 groups].
// row_scales [n] floats: the row's largest scale times 2^-6: value = row_scale E4M3.
// Groups more than 11 binades below their row's largest are rounded to E2M1 steps of the lowest
// exponent; the values that this changes are counted.
struct PackFp4 {
  const uint8_t* codes = nullptr;   // [n, k / 2]
  const uint8_t* scales = nullptr;  // [n, k / 32]
  const uint8_t* up_codes = nullptr;
  const uint8_t* up_scales = nullptr;
  int n = 0;
  int k = 0;
  uint8_t* units = nullptr;     // n k / 2 x 17 / 16 bytes
  float* row_scales = nullptr;  // [n], in packed row order
  unsigned long long* changed = nullptr;
};
cudaError_t pack_fp4(const PackFp4& weight, cudaStream_t stream);
constexpr int kFp4UnitBytes = 4352;

}  // namespace fathom::cuda
