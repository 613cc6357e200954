#pragma once

// Steps that several words are made of, row by row; a row is contiguous, rows may lie apart.
// All rows are bf16 values. Sources: spec/backbone.md 2.2, 2.4, 2.5.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/cuda/tables.h"
#include "tensor/tensor.h"

namespace fathom::cuda {

// y = RMSNorm(x; weight), rounded; y may be x. Codes and scales of y where asked.
struct NormRows {
  uint16_t* y = nullptr;
  int64_t y_stride = 0;
  uint8_t* codes = nullptr;  // [n_rows, width], or null
  uint8_t* scales = nullptr;
  int64_t code_stride = 0;
  int64_t scale_stride = 0;
  const uint16_t* x = nullptr;
  int64_t x_stride = 0;
  const uint16_t* weight = nullptr;
  int64_t n_rows = 0;
  int64_t width = 0;  // multiple of 32
  float eps = 0;
};
void launch_norm(const NormRows& args, cudaStream_t stream);

// Rotates the last 2 `half` channels of each of `heads` parts of a row; y may be x.
struct RotateRows {
  uint16_t* y = nullptr;
  const uint16_t* x = nullptr;  // [n_rows, heads, width], dense
  const float* cos = nullptr;   // [n_rows, half]
  const float* sin = nullptr;
  int64_t n_rows = 0;
  int64_t heads = 1;
  int64_t width = 0;
  int64_t half = 0;
  float sign = 1.0f;
};
void launch_rotate(const RotateRows& args, cudaStream_t stream);

// The same, then through IDX4: what indexer queries go through. The width is a multiple of 32.
void launch_index_queries(const RotateRows& args, cudaStream_t stream);

// Window rows in one pass: norm, rotation of the last 2 `half` channels, A8.
struct WindowRowsArgs {
  uint8_t* codes = nullptr;  // [n_rows, width]
  uint8_t* scales = nullptr;
  int64_t code_stride = 0;
  int64_t scale_stride = 0;
  const uint16_t* x = nullptr;
  int64_t x_stride = 0;
  const uint16_t* weight = nullptr;
  const float* cos = nullptr;  // [n_rows, half]
  const float* sin = nullptr;
  int64_t half = 0;
  int64_t n_rows = 0;
  int64_t width = 0;  // multiple of 32
  float eps = 0;
};
void launch_window_rows(const WindowRowsArgs& args, cudaStream_t stream);

// cos and sin of positions [n].
struct RotationTable {
  float* cos = nullptr;  // [n, half]
  float* sin = nullptr;
  const int64_t* position = nullptr;
  const float* inv_freq = nullptr;
  int64_t n = 0;
  int64_t half = 0;
};
void launch_rotation(const RotationTable& args, cudaStream_t stream);

// A8 codes and scales of dense rows, and back.
struct QuantizeRows {
  uint8_t* codes = nullptr;  // [n_rows, width]
  uint8_t* scales = nullptr;
  int64_t code_stride = 0;
  int64_t scale_stride = 0;
  uint16_t* values = nullptr;  // [n_rows, width]
  int64_t stride = 0;
  int64_t n_rows = 0;
  int64_t width = 0;
};
void launch_quantize(const QuantizeRows& args, cudaStream_t stream);
void launch_dequantize(const QuantizeRows& args, cudaStream_t stream);

// values become what IDX4 makes of them; `n` of them, a multiple of 32.
void launch_through_idx4(uint16_t* values, int64_t n, cudaStream_t stream);

}  // namespace fathom::cuda
