#pragma once

// The one summation tree of every product of rows (docs/design.md section 7), and matrix products
// built from it. 16 virtual lanes; of each 32-wide block, in order of blocks, lane j takes elements
// j and j + 16: acc_j = acc_j + fma(a[j + 16], b[j + 16], a[j] b[j]); lanes are folded 8, 4, 2, 1.
// Operands are fp32 values that already carry their block scales: scales are powers of two, so this
// is bit for bit fma(pair of codes, scale product, acc_j). K is padded to a multiple of 32 with
// zeros, which keep acc. All paths give the same bits, as long as no FP8 code is a NaN (0x7f,
// 0xff).
//
// Tried: one fma for each element. It rounds more often on the way and moved two of the eleven
// short golden prompts off the reference by a flipped code; this tree moves none.

#include <cstdint>

#include "ops/backends.h"
#include "tensor/codecs.h"
#include "tensor/tensor.h"

namespace fathom::cpu {

constexpr int64_t padded_width(int64_t K) { return (K + 31) / 32 * 32; }

// sum_k a[k] b[k]; K a multiple of 32.
float dot(CpuPath path, const float* a, const float* b, int64_t K);

// Writes rows [begin, end) of the operand that `w.format` meets, as fp32 with scales multiplied in:
// the A8 form for FP8 and FP4 weights, the bf16 values otherwise. out: [end - begin, padded K].
void expand_rows(const Activation& x, WeightFormat format, int64_t begin, int64_t end, float* out);

// out[r, o] = dot(x row r, w row o) for r in [0, n_rows), o in [o_begin, o_end). x: fp32 rows of
// padded K as expand_rows writes them. out: row stride out_stride, fp32, or rounded once to bf16
// where out_bf16 is given instead. Any number of rows gives each row the same bits.
struct MatmulArgs {
  float* out = nullptr;  // out[r * out_stride + (o - o_begin)]
  Bf16* out_bf16 = nullptr;
  int64_t out_stride = 0;
  const float* x = nullptr;  // [n_rows, K padded to 32]
  // Where given, row r of x stands at x + x_rows[r] * padded K.
  const int32_t* x_rows = nullptr;
  int64_t n_rows = 0;
  const Weight* w = nullptr;
  int64_t o_begin = 0;
  int64_t o_end = 0;
};
void matmul(CpuPath path, const MatmulArgs& args);

// The fp32 values of a weight row with its scales, [padded K]: what the products see.
void expand_weight_row(const Weight& w, int64_t o, float* out);

}  // namespace fathom::cpu
