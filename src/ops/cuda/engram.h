#pragma once

// Rows of the hashed table and their gate (ops/cpu/engram.h). spec/engram.md 6, 7

#include <cuda_runtime_api.h>

#include <cstdint>

namespace fathom::cuda {

struct EngramGatherKernelArgs {
  uint16_t* out = nullptr;  // [N, C w]
  int64_t out_stride = 0;
  const int64_t* rows = nullptr;  // [N, C]
  int64_t row_stride = 0;
  const uint8_t* table = nullptr;  // [R, w]
  const uint8_t* scales = nullptr;
  int64_t n_rows = 0;
  int64_t columns = 0;
  int64_t width = 0;  // w, multiple of 32
};
void launch_engram_gather(const EngramGatherKernelArgs& args, cudaStream_t stream);

struct EngramMixKernelArgs {
  uint16_t* residual = nullptr;  // [N, n, D]
  float* gates = nullptr;        // [N, n]
  const uint16_t* kv = nullptr;  // [N, (n + 1) D]
  const uint16_t* q_weight = nullptr;
  const uint16_t* k_weight = nullptr;
  const uint8_t* dead = nullptr;  // [N], or null
  int64_t n_rows = 0;
  int64_t n = 0;
  int64_t hidden = 0;
  float eps = 0;
  float inverse_root = 0;   // hidden^-0.5
  bool plain_edge = false;  // LaunchGrid::plain, of the gate
};
void launch_engram_gate(const EngramMixKernelArgs& args, cudaStream_t stream);
void launch_engram_mix(const EngramMixKernelArgs& args, cudaStream_t stream);

}  // namespace fathom::cuda
