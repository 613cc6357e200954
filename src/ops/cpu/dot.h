#pragma once

// The one summation tree of every product of rows (docs/design.md section 7), and matrix products
// built from it. 16 virtual lanes: lane j of 16 takes elements j, then j + 16 of each 32-wide
// block, in order of blocks, acc_j = fma(a, b, acc_j); lanes are folded 8, 4, 2, 1. Operands are
// fp32 values that already carry their block scales, which is exact since scales are powers of two.
// K is padded to a multiple of 32 with zeros (fma(0, 0, acc) keeps acc). All paths give the same
// bits.

#include <cstdint>

#include "ops/backends.h"
#include "tensor/tensor.h"

namespace fathom::cpu {

// sum_k a[k] b[k]; K a multiple of 32.
float dot(CpuPath path, const float* a, const float* b, int64_t K);

// Writes rows [begin, end) of the operand that `w.format` meets, as fp32 with scales multiplied in:
// the A8 form for FP8 and FP4 weights, the bf16 values otherwise. out: [end - begin, padded K].
void expand_rows(const Activation& x, WeightFormat format, int64_t begin, int64_t end, float* out);

// out[r, o] = dot(x row r, w row o) for r in [0, n_rows), o in [o_begin, o_end). x: fp32 rows of
// padded K as expand_rows writes them. out: row stride out_stride, fp32. Any number of rows gives
// each row the same bits.
struct MatmulArgs {
  float* out = nullptr;  // out[r * out_stride + (o - o_begin)]
  int64_t out_stride = 0;
  const float* x = nullptr;  // [n_rows, K padded to 32]
  int64_t n_rows = 0;
  const Weight* w = nullptr;
  int64_t o_begin = 0;
  int64_t o_end = 0;
};
void matmul(CpuPath path, const MatmulArgs& args);

}  // namespace fathom::cpu
