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
  // Of the fused kernels alone:
  float* sums = nullptr;  // [N, (2 + n) n + 1] before their root mean square; at the end its sum
  const uint16_t* norm = nullptr;  // [D]; null: neither collapse nor norm
  uint16_t* x = nullptr;           // [N, D] with its A8 form
  uint8_t* codes = nullptr;
  uint8_t* scales = nullptr;
  int64_t x_stride = 0;
  int64_t code_stride = 0;
  int64_t scale_stride = 0;
  bool plain_edge = false;  // LaunchGrid::plain
  bool many = false;        // many rows may go through the kernel for them
};
void launch_mhc_expand(const MhcArgs& args, cudaStream_t stream);
void launch_mhc_predict(const MhcArgs& args, cudaStream_t stream);
void launch_mhc_coefficients(const MhcArgs& args, cudaStream_t stream);
void launch_mhc_collapse(const MhcArgs& args, cudaStream_t stream);

inline constexpr int64_t kMaxStreams = 8;

// The same bits in fewer and wider kernels, where the shapes allow it: four streams, widths that
// are multiples of 256.
bool mhc_rows_fit(const MhcArgs& args);
// Expand where y is given, collapse and norm where norm is given.
void launch_mhc_rows(const MhcArgs& args, cudaStream_t stream);
// Predict and coefficients, through `sums`; on a stream that waits for the row's kernels by an
// event.
void launch_mhc_coefficients_of(const MhcArgs& args, cudaStream_t stream);

}  // namespace fathom::cuda
