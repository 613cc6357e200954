#pragma once

// Single-pass mHC, step by step (ops/cpu/mhc.h). spec/backbone.md 3.1

#include <cuda_runtime_api.h>

#include <cstdint>

namespace fathom::cuda {

// Pointers of one word; those of a step that is left out are null. Tensors are dense.
struct MhcArgs {
  uint16_t* residual = nullptr;  // [N, n, D]
  const uint16_t* y = nullptr;   // [N, D]
  const float* post = nullptr;   // [N, n]
  const float* comb = nullptr;   // [N, n, n]
  const float* fn = nullptr;     // [(2 + n) n, n D]
  const float* scale = nullptr;
  const float* base = nullptr;
  float* mix = nullptr;  // [N, (2 + n) n], between predict and coefficients
  float* new_pre = nullptr;
  float* new_post = nullptr;
  float* new_comb = nullptr;
  const float* pre = nullptr;  // [N, n]
  uint16_t* u = nullptr;       // [N, D]
  int64_t n_rows = 0;
  int64_t n = 0;
  int64_t hidden = 0;
  int iters = 20;
  float hc_eps = 0;
  float norm_eps = 0;
};
void launch_mhc_expand(const MhcArgs& args, cudaStream_t stream);
void launch_mhc_predict(const MhcArgs& args, cudaStream_t stream);
void launch_mhc_coefficients(const MhcArgs& args, cudaStream_t stream);
void launch_mhc_collapse(const MhcArgs& args, cudaStream_t stream);

inline constexpr int64_t kMaxStreams = 8;

}  // namespace fathom::cuda
