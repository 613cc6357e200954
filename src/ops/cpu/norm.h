#pragma once

// RMSNorm of one row, and rows that enter matrix products. Rows are bf16 values held as fp32.

#include <cstdint>

#include "ops/backends.h"
#include "tensor/codecs.h"
#include "tensor/tensor.h"

namespace fathom::cpu {

// y = bf(w (x rsqrt(mean(x^2) + eps))); the sum of squares is dot(x, x). spec/backbone.md 2.4.
// width: multiple of 32; y may be x.
struct NormRow {
  float* y = nullptr;
  const float* x = nullptr;
  const Bf16* weight = nullptr;
  int64_t width = 0;
  float eps = 0;
};
void rms_norm_row(CpuPath path, const NormRow& args);

// Writes row `row` of an activation: the bf16 values and their A8 form.
void store_activation(CpuPath path, const float* values, int64_t row, const Activation& out);

}  // namespace fathom::cpu
