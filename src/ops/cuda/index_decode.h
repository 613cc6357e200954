#pragma once

// The indexer on tensor cores: scores a row at a time, the best of them by many blocks
// (spec/backbone.md 3.6, 3.7). 32 heads of 128, candidate blocks of 8.
//
// Scores. Products of a query and a key are added by the tensor core over all 128 columns; heads in
// the order 8 j + 2 t, 8 j + 2 t + 1 for j = 0 .. 3, then over t by 1 and 2. A score depends on its
// query and key alone.
// Choice. The same set as index_select.h chooses from the same scores, ties included, ascending.

#include <cuda_runtime_api.h>

#include "ops/cuda/index_select.h"

namespace fathom::cuda {

inline constexpr int kIndexBins = 4096;  // by the leading bits of a score's key
inline constexpr int kIndexKept = 8192;  // places of a list that may reach the last choice

// Beside the scores, for every row of a piece; lists are those of the entries and of the blocks.
struct IndexDecodeRoom {
  uint32_t* bins = nullptr;  // [rows, 2, kIndexBins + 1]; the last one counts `kept`
  uint64_t* kept = nullptr;  // [rows, 2, kIndexKept], key and place
  int entry_rows_log2 = 0;   // of keys.stream.rows, a power of two
  static constexpr int64_t bin_words(int64_t rows) { return rows * 2 * (kIndexBins + 1); }
  static constexpr int64_t kept_words(int64_t rows) { return rows * 2 * kIndexKept; }
};

struct IndexDecode {
  IndexKernelArgs a;
  IndexDecodeRoom room;
};

// Whether the shapes are those of this kernel, and the lists fit what it keeps of them.
bool index_decode_fits(const IndexKernelArgs& args);
// In place of launch_plan_rows, launch_scores and launch_choose, for the rows of a piece.
cudaError_t index_decode(const IndexDecode& args, cudaStream_t stream);

}  // namespace fathom::cuda
