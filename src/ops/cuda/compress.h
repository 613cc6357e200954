#pragma once

// Compressed entries, index keys and remainders (ops/cpu/compressor.h). spec/backbone.md 3.5, 3.6

#include <cuda_runtime_api.h>

#include "ops/cuda/tables.h"

namespace fathom::cuda {

// A group that the step completes and writes. Its first token stands at `position`.
struct Group {
  int64_t sequence = 0;
  int64_t entry = 0;
};

struct CompressKernelArgs {
  BlockTable main;
  BlockTable index;
  SlotTable remainder;
  const float* a = nullptr;       // [N, dh] projections of the step's rows
  const float* z = nullptr;       // ratio > 1
  uint16_t* c = nullptr;          // [G, dh]
  uint16_t* keys = nullptr;       // [G, di]
  const Group* groups = nullptr;  // [G]
  int64_t n_groups = 0;
  RowTable rows;
  int64_t ratio = 1;
  int64_t width = 0;        // dh
  int64_t index_width = 0;  // di
};
// The group that each sequence of a step of one row each completes, entry -1 where it completes
// none, and the position of its first token: what a recorded step finds out by itself. Kernels
// write nothing for entry -1.
struct StepGroups {
  Group* groups = nullptr;       // [S]
  int64_t* positions = nullptr;  // [S]
  RowTable rows;
  int64_t ratio = 1;
};
void launch_step_groups(const StepGroups& args, cudaStream_t stream);
// c = the softmax over the group's z of its a, channel by channel; ratio 1: a itself.
void launch_pool_groups(const CompressKernelArgs& args, cudaStream_t stream);
void launch_write_keys(const CompressKernelArgs& args, cudaStream_t stream);
void launch_write_entries(const CompressKernelArgs& args, cudaStream_t stream);
// Tokens of the group that a sequence leaves unfinished and that the step itself brought.
void launch_keep_remainder(const CompressKernelArgs& args, cudaStream_t stream);

// For a probe: c as it was packed, and the first n keys of sequence 0.
void launch_read_entries(const CompressKernelArgs& args, cudaStream_t stream);
void launch_read_keys(const CompressKernelArgs& args, uint16_t* keys, int64_t n,
                      cudaStream_t stream);

}  // namespace fathom::cuda
