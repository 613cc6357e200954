#pragma once

// The largest logit of a row (ops/words.h, GreedyArgs), and the row numbers of the hashed table
// (ops/engram_rows.h).

#include <cuda_runtime_api.h>

#include "ops/engram_rows.h"

namespace fathom::cuda {

struct GreedyKernelArgs {
  int32_t* ids = nullptr;         // [N]
  const float* logits = nullptr;  // [N, V]
  int64_t logit_stride = 0;
  int32_t* lookback = nullptr;  // [N, n_back], or null
  const int32_t* canonical = nullptr;
  int32_t* log = nullptr;  // [N, n_log], or null
  int64_t* count = nullptr;
  uint64_t* best = nullptr;  // [N, kGreedyParts] room
  int64_t n_rows = 0;
  int64_t vocab = 0;
  int64_t n_back = 0;
  int64_t n_log = 0;
};
inline constexpr int kGreedyParts = 64;
void launch_greedy(const GreedyKernelArgs& args, cudaStream_t stream);

struct EngramRowsKernelArgs {
  int64_t* rows = nullptr;            // [N, columns]
  const int32_t* lookback = nullptr;  // [N, n_back]
  EngramColumns columns;
  int64_t n_rows = 0;
  int64_t n_columns = 0;
};
void launch_engram_rows(const EngramRowsKernelArgs& args, cudaStream_t stream);

}  // namespace fathom::cuda
