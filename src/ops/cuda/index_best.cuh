#pragma once

// What the scores of index_decode.cu leave for the choice of index_best.cu.

#include "ops/cuda/index_choice.cuh"
#include "ops/cuda/index_decode.h"

namespace fathom::cuda {

__device__ inline uint32_t* bins_of(const IndexDecode& args, int64_t piece_row, int list) {
  return args.room.bins + (piece_row * 2 + list) * (kIndexBins + 1);
}
__device__ inline uint64_t* kept_of(const IndexDecode& args, int64_t piece_row, int list) {
  return args.room.kept + (piece_row * 2 + list) * kIndexKept;
}
__device__ inline uint32_t bin_of(uint32_t key) { return key / (uint32_t{1} << 20); }

// Collects what may be among the best of each list, then chooses.
cudaError_t launch_index_best(const IndexDecode& args, cudaStream_t stream);

}  // namespace fathom::cuda
