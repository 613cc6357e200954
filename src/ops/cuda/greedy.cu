#include "ops/cuda/greedy.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/recording.h"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;

// Larger logits have larger keys, smaller ids among equals; a NaN is below every number.
__device__ uint64_t key_of(float logit, int64_t id) {
  uint32_t bits = __float_as_uint(logit == 0.0f ? 0.0f : logit);
  bits = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  if (logit != logit) bits = 0;
  return static_cast<uint64_t>(bits) << 32 | (0xffffffffu - static_cast<uint32_t>(id));
}

__device__ uint64_t best_of_block(uint64_t best) {
  __shared__ uint64_t warps[kThreads / 32];
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    const uint64_t other = __shfl_xor_sync(kFullWarp, best, width);
    best = other > best ? other : best;
  }
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
  __syncthreads();
  for (const uint64_t other : warps) best = other > best ? other : best;
  return best;
}

// Grid: a part of a row each.
__global__ void __launch_bounds__(kThreads) parts_kernel(const GreedyKernelArgs a) {
  enter();
  const float* logits = a.logits + blockIdx.y * a.logit_stride;
  uint64_t best = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.vocab;
       i += int64_t{kGreedyParts} * kThreads) {
    const uint64_t key = key_of(logits[i], i);
    best = key > best ? key : best;
  }
  best = best_of_block(best);
  if (threadIdx.x == 0) a.best[blockIdx.y * kGreedyParts + blockIdx.x] = best;
}

// Grid: a row each, one warp.
__global__ void __launch_bounds__(32) choose_kernel(const GreedyKernelArgs a) {
  enter();
  const int64_t row = blockIdx.x;
  uint64_t best = 0;
  for (int i = static_cast<int>(threadIdx.x); i < kGreedyParts; i += 32) {
    const uint64_t key = a.best[row * kGreedyParts + i];
    best = key > best ? key : best;
  }
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    const uint64_t other = __shfl_xor_sync(kFullWarp, best, width);
    best = other > best ? other : best;
  }
  if (threadIdx.x != 0) return;
  const auto id = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(best));
  a.ids[row] = id;
  if (a.lookback != nullptr) {
    int32_t* lookback = a.lookback + row * a.n_back;
    for (int64_t i = a.n_back - 1; i > 0; --i) lookback[i] = lookback[i - 1];
    lookback[0] = a.canonical[id];
  }
  if (a.log == nullptr || a.count[row] >= a.n_log) return;
  a.log[row * a.n_log + a.count[row]] = id;
  ++a.count[row];
}

__global__ void __launch_bounds__(kThreads) rows_kernel(const EngramRowsKernelArgs a) {
  enter();
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= a.n_rows) return;
  engram_row_numbers(a.columns, a.lookback + row * a.columns.n_back, a.rows + row * a.n_columns);
}

__global__ void __launch_bounds__(kThreads) advance_kernel(const AdvanceRows a) {
  enter();
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= a.n_rows) return;
  for (int t = 0; t < a.n_tables; ++t) {
    ++a.tables[t][row];
    auto* sequences = reinterpret_cast<SequenceEntry*>(a.tables[t] + 2 * a.n_rows);
    ++sequences[row].first_position;
  }
}

unsigned blocks_for(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

}  // namespace

void launch_greedy(const GreedyKernelArgs& args, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(args.n_rows);
  launch_dependent(parts_kernel, {dim3(kGreedyParts, rows), kThreads}, args, stream);
  launch_dependent(choose_kernel, {rows, 32}, args, stream);
}

void launch_engram_rows(const EngramRowsKernelArgs& args, cudaStream_t stream) {
  if (args.n_rows > 0) {
    launch_dependent(rows_kernel, {blocks_for(args.n_rows), kThreads}, args, stream);
  }
}

void launch_advance(const AdvanceRows& args, cudaStream_t stream) {
  if (args.n_rows > 0) {
    launch_dependent(advance_kernel, {blocks_for(args.n_rows), kThreads}, args, stream);
  }
}

}  // namespace fathom::cuda
