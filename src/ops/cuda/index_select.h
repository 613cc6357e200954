#pragma once

// Scores of the indexer and the best of them (ops/cpu/indexer.h, best.h). spec/backbone.md 3.6, 3.7
//
// A place is what may be chosen: an entry, or the i-th entry of a row's list of candidate blocks.
// Scores are kept for a bounded piece of rows at a time.

#include <cuda_runtime_api.h>

#include "ops/cuda/tables.h"
#include "ops/words.h"

namespace fathom::cuda {

// What is known of a row before it is scored.
struct RowPlan {
  int64_t n_places = 0;
  int64_t visible = 0;   // entries
  int64_t n_blocks = 0;  // candidate blocks of the visible entries
  bool settled = false;  // everything is chosen: no score decides anything
};

struct IndexKernelArgs {
  int32_t* topk = nullptr;           // [N, K] out
  int32_t* pool_out = nullptr;       // [N, P] out, or null
  const int32_t* pool_in = nullptr;  // [N, P], or null
  int64_t K = 0;
  int64_t topk_stride = 0;
  int64_t P = 0;  // of pool_out or pool_in
  int64_t pool_stride = 0;
  const uint16_t* q = nullptr;        // [N, Hi, di] as IDX4 leaves it
  const uint16_t* weights = nullptr;  // [N, Hi]
  int64_t weight_stride = 0;
  float weight_scale = 1.0f;  // di^-0.5 Hi^-0.5
  BlockTable keys;
  RowTable rows;
  int64_t n_heads = 0;
  int64_t width = 0;  // di
  int64_t block_size = 8;
  IndexScores mode = IndexScores::kF32;
  bool settle = true;        // false: all rows are scored, for a probe
  RowPlan* plan = nullptr;   // [N]
  float* scores = nullptr;   // [rows of the piece, stride]
  float* tops = nullptr;     // [rows of the piece, block_stride], where a pool is built
  int64_t stride = 0;        // places of the piece's widest row
  int64_t block_stride = 0;  // candidate blocks of it
  int64_t first_row = 0;     // of the piece
  int64_t n_piece = 0;
};
void launch_plan_rows(const IndexKernelArgs& args, cudaStream_t stream);
void launch_scores(const IndexKernelArgs& args, cudaStream_t stream);
// Best places of the piece's rows, and their best blocks where a pool is built.
void launch_choose(const IndexKernelArgs& args, cudaStream_t stream);

}  // namespace fathom::cuda
