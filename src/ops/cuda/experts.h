#pragma once

// What stands around the products of the experts (ops/cpu/experts.h). spec/backbone.md 3.10
// A slot is a (row, chosen expert) pair; slots are ordered by expert, then row.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/cuda/product.h"

namespace fathom::cuda {

struct GroupArgs {
  int32_t* slot_row = nullptr;   // [N k] the row of a slot
  int32_t* slot_of = nullptr;    // [N, k] the slot of a choice
  float* slot_weight = nullptr;  // [N k]
  RowTile* tiles = nullptr;      // [max_tiles]
  const int32_t* ids = nullptr;  // [N, k]
  const float* weights = nullptr;
  int64_t id_stride = 0;
  int64_t weight_stride = 0;
  int64_t n_rows = 0;
  int64_t k = 0;
  int64_t n_experts = 0;
  int64_t max_tiles = 0;
};
// Tiles that any choice of `slots` slots among experts may need.
constexpr int64_t max_tiles(int64_t slots, int64_t n_experts) {
  const int64_t partial = slots < n_experts ? slots : n_experts;
  return partial + slots / kTileRows;
}
void launch_group(const GroupArgs& args, cudaStream_t stream);

// The input of w2: bf(weight (silu(gate) up)), with its A8 form where codes are given.
struct SwigluArgs {
  uint16_t* out = nullptr;  // [n, width]
  uint8_t* codes = nullptr;
  uint8_t* scales = nullptr;
  const uint16_t* gate = nullptr;  // [n, width]
  const uint16_t* up = nullptr;
  const float* weight = nullptr;  // [n], or null: 1
  int64_t n = 0;
  int64_t width = 0;
  float limit = 0;  // 0: no clamp
};
void launch_swiglu(const SwigluArgs& args, cudaStream_t stream);

// y = bf(sum of the row's slots in increasing id, then the shared output).
struct CombineArgs {
  uint16_t* y = nullptr;  // [N, D]
  int64_t y_stride = 0;
  const uint16_t* routed = nullptr;  // [N k, D]
  const uint16_t* shared = nullptr;  // [N, D]
  const int32_t* slot_of = nullptr;  // [N, k]
  int64_t n_rows = 0;
  int64_t k = 0;
  int64_t hidden = 0;
};
void launch_combine(const CombineArgs& args, cudaStream_t stream);

inline constexpr int64_t kMaxChosen = 32;  // k

}  // namespace fathom::cuda
