#pragma once

// Attention over window and chosen entries (ops/cpu/attention.h). spec/backbone.md 3.8
// Eight heads of a row a block; 64 list slots are decoded at a time and shared by the heads.

#include <cuda_runtime_api.h>

#include "ops/cuda/tables.h"

namespace fathom::cuda {

struct AttendKernelArgs {
  uint16_t* o = nullptr;        // [N, H, dh]
  const uint16_t* q = nullptr;  // [N, H, dh]
  const float* sink = nullptr;  // [H]
  SlotTable window;
  const uint8_t* row_codes = nullptr;   // [N, dh] window rows of the step
  const uint8_t* row_scales = nullptr;  // [N, dh/32]
  BlockTable global;
  const int32_t* topk = nullptr;  // [N, K], or null
  int64_t K = 0;
  int64_t topk_stride = 0;
  const float* cos = nullptr;  // [N, half]
  const float* sin = nullptr;
  int64_t half = 0;
  RowTable rows;
  int64_t n_heads = 0;
  int64_t width = 0;  // multiple of 32
  float scale = 1.0f;
  bool rotate = true;  // q here and o back; otherwise both are taken as they stand
};
void launch_attend(const AttendKernelArgs& args, cudaStream_t stream);

}  // namespace fathom::cuda
