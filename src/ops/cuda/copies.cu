#include "ops/cuda/copies.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/tables.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;

// Unit: what a thread moves at a time; it divides the row and all strides.
template <class Unit>
__global__ void __launch_bounds__(kThreads) copy_kernel(const CopyRows a) {
  enter();
  const int64_t units = a.row_bytes / static_cast<int64_t>(sizeof(Unit));
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.n_rows * a.copies * units) return;
  const int64_t row = i / units / a.copies;
  const int64_t copy = i / units % a.copies;
  const int64_t from = a.index32 != nullptr ? a.index32[row] : a.index64[row];
  const Unit* in = reinterpret_cast<const Unit*>(a.in + from * a.in_stride);
  Unit* out = reinterpret_cast<Unit*>(a.out + row * a.out_stride + copy * a.row_bytes);
  out[i % units] = in[i % units];
}

template <class Unit>
bool fits(const CopyRows& a) {
  const auto bytes = static_cast<int64_t>(sizeof(Unit));
  const auto place = reinterpret_cast<uintptr_t>(a.in) | reinterpret_cast<uintptr_t>(a.out);
  return a.row_bytes % bytes == 0 && a.in_stride % bytes == 0 && a.out_stride % bytes == 0 &&
         place % sizeof(Unit) == 0;
}

template <class Unit>
void copy(const CopyRows& a, cudaStream_t stream) {
  const int64_t n = a.n_rows * a.copies * (a.row_bytes / static_cast<int64_t>(sizeof(Unit)));
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>((n + kThreads - 1) / kThreads);
  launch_dependent(copy_kernel<Unit>, {blocks, kThreads, 0, a.plain_edge}, a, stream);
}

// Grid: a row of the step each.
__global__ void __launch_bounds__(kThreads) commit_kernel(const CommitRows a) {
  enter();
  const int64_t row = blockIdx.x;
  const int64_t s = a.rows.sequence[row];
  const SequenceEntry& sequence = a.rows.sequences[s];
  const KvStream& stream = a.window.stream;
  if (row - sequence.first_row < sequence.n_rows - stream.rows) return;
  const int64_t place = a.rows.position[row] % stream.rows;
  uint8_t* codes = payload(a.window, s, place);
  uint8_t* scales = scale(a.window, s, place);
  for (int64_t i = threadIdx.x; i < stream.payload_bytes; i += kThreads) {
    codes[i] = a.codes[row * stream.payload_bytes + i];
  }
  for (int64_t i = threadIdx.x; i < stream.scale_bytes; i += kThreads) {
    scales[i] = a.scales[row * stream.scale_bytes + i];
  }
}

}  // namespace

void launch_copy_rows(const CopyRows& args, cudaStream_t stream) {
  if (fits<uint4>(args)) return copy<uint4>(args, stream);
  if (fits<uint32_t>(args)) return copy<uint32_t>(args, stream);
  copy<uint8_t>(args, stream);
}

void launch_commit(const CommitRows& args, cudaStream_t stream) {
  launch_dependent(commit_kernel, {static_cast<unsigned>(args.rows.n_rows), kThreads}, args,
                   stream);
}

}  // namespace fathom::cuda
