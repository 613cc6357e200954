#pragma once

// Words that move rows and compute nothing: embed, gather_rows, window_commit.

#include <cuda_runtime_api.h>

#include "ops/cuda/tables.h"

namespace fathom::cuda {

// Row i of out, `copies` times side by side, is row index[i] of in.
struct CopyRows {
  uint8_t* out = nullptr;
  const uint8_t* in = nullptr;
  const int32_t* index32 = nullptr;  // one of the two
  const int64_t* index64 = nullptr;
  int64_t n_rows = 0;
  int64_t row_bytes = 0;
  int64_t in_stride = 0;   // bytes
  int64_t out_stride = 0;  // bytes
  int64_t copies = 1;
  bool plain_edge = false;  // LaunchGrid::plain
};
void launch_copy_rows(const CopyRows& args, cudaStream_t stream);

struct CommitRows {
  SlotTable window;
  const uint8_t* codes = nullptr;   // [N, dh]
  const uint8_t* scales = nullptr;  // [N, dh/32]
  RowTable rows;
};
void launch_commit(const CommitRows& args, cudaStream_t stream);

}  // namespace fathom::cuda
