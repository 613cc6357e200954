#pragma once

// The routed experts of a step with few rows a expert, on packed FP4 weights (pack.h): grouping of
// the routes, gate and up product with SwiGLU and A8, down product, sum per row. Meaning:
// spec/backbone.md 3.10; the summation trees are those of decode_gemm.cuh.

#include <cuda_runtime.h>

#include <cstdint>

namespace fathom::cuda {

// Routes in expert order. A pair is one (row, expert); pairs are sorted by expert, then row.
struct Routes {
  int* active = nullptr;    // [experts]: ids of the experts that have pairs, increasing
  int* n_active = nullptr;  // [1]
  int* offsets = nullptr;   // [experts + 1]: pairs of expert e are offsets[e] .. offsets[e + 1]
  int* pair_row = nullptr;  // [rows k]
  float* pair_weight = nullptr;  // [rows k]
  int* row_pairs = nullptr;      // [rows, k]: the pairs of a row by increasing expert id
};

struct GroupRoutes {
  const int* ids = nullptr;        // [rows, k], distinct within a row
  const float* weights = nullptr;  // [rows, k]
  int rows = 0;                    // rows k at most 8,192
  int k = 0;                       // at most 8
  int experts = 0;                 // at most 1,024
  Routes routes;
};
cudaError_t group_routes(const GroupRoutes& args, cudaStream_t stream);

struct ExpertsDecode {
  const uint8_t* gate_up_units =
      nullptr;                            // of pack_fp4 with an up matrix, [2 width, d], per expert
  const float* gate_up_scales = nullptr;  // [experts, 2 width]
  const uint8_t* down_units = nullptr;    // of pack_fp4, [d, width], per expert
  const float* down_scales = nullptr;     // [experts, d]
  int experts = 0;
  int d = 0;      // a multiple of 128
  int width = 0;  // a multiple of 128
  Routes routes;
  // Routes and x were complete when the kernel in front of experts_gate_up waited for its inputs,
  // and that kernel starts its dependents after that: then units and rows are fetched while it
  // runs.
  bool settled = false;
  int max_active = 0;  // at least the number of experts with pairs
  int columns = 0;  // pairs of an expert at a time (8, 16 or 32); more are done in further passes
  const uint8_t* x = nullptr;         // [rows, d] A8
  const uint8_t* x_scales = nullptr;  // [rows, d / 32]
  float limit = 0;
  uint8_t* hidden = nullptr;         // [pairs, width] A8
  uint8_t* hidden_scales = nullptr;  // [pairs, width / 32]
  uint16_t* out = nullptr;           // [pairs, d] bf16
};
// bf(route weight silu(gate) up) as A8 into `hidden`.
cudaError_t experts_gate_up(const ExpertsDecode& args, cudaStream_t stream);
// hidden times the down matrix into `out`. With a programmatic edge behind experts_gate_up it reads
// `routes` before that kernel is complete: whatever writes them must precede experts_gate_up.
cudaError_t experts_down(const ExpertsDecode& args, cudaStream_t stream);

// y = bf(sum of the row's pairs by increasing expert id, then the shared expert's row), FP32.
struct CombineExperts {
  const int* row_pairs = nullptr;    // [rows, k]
  const uint16_t* pairs = nullptr;   // [pairs, d] bf16
  const uint16_t* shared = nullptr;  // [rows, d] bf16
  uint16_t* y = nullptr;             // [rows, d] bf16
  int rows = 0;
  int k = 0;
  int d = 0;  // a multiple of 8
};
cudaError_t combine_experts(const CombineExperts& args, cudaStream_t stream);

}  // namespace fathom::cuda
