#pragma once

// The four dynamic quantisers and the weight quantisers (spec/backbone.md 2.1 to 2.3) as exact
// "quantise, then dequantise" on tensors. Straight-through: the gradient passes unchanged.

#include <ATen/ATen.h>

namespace fathom::train {

enum class Quant : int {
  kA8 = 0,    // E4M3 with one E8M0 per 32: activations and window rows (A8, SWA8)
  kIdx4 = 1,  // E2M1 with one E8M0 per 32: index queries and keys
  kKv4 = 2,   // E2M1 with one E4M3 per 16: main entries
};

// Blocks run along the last axis. The result has the type of x.
at::Tensor fake_quant(const at::Tensor& x, Quant kind);

// Codes and scales of a weight; the value is code * 2^(scale - 127), exact in bf16.
struct Coded {
  at::Tensor codes;   // E4M3 bytes of w's shape, or E2M1 codes 0..15 of w's shape (uint8)
  at::Tensor scales;  // E8M0 bytes
  at::Tensor value;   // float
};

// [rows, columns] in blocks of 32 x 32, scale [ceil(rows / 32), ceil(columns / 32)].
Coded quant_fp8_matrix(const at::Tensor& w);
// [..., columns], E4M3 with one scale per 32 columns.
Coded quant_fp8_rows(const at::Tensor& w);
// [..., columns], E2M1 with one scale per 32 columns.
Coded quant_fp4_rows(const at::Tensor& w);

// 2^(byte - 127) of E8M0 bytes; the value of E2M1 codes.
at::Tensor e8m0_value(const at::Tensor& bytes);
at::Tensor e2m1_value(const at::Tensor& codes);

}  // namespace fathom::train
