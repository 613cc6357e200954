#include "ops/cuda/index_best.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"

namespace fathom::cuda {
namespace {

constexpr int kCollectThreads = 256;
constexpr int kCollected = 4096;  // places of a block

struct List {
  const float* scores;
  int64_t n;
  int64_t wanted;
};
__device__ List list_of(const IndexKernelArgs& a, const RowPlan& plan, int64_t piece_row,
                        int list) {
  if (list == 0) return {a.scores + piece_row * a.stride, plan.n_places, a.K};
  return {a.tops + piece_row * a.block_stride, plan.n_blocks, a.P};
}

// The lowest key of the bin in which the last wanted score is; 1 where fewer are to be had.
__device__ uint32_t lowest_key(const uint32_t* bins, int64_t wanted, uint32_t* lowest) {
  constexpr int kEach = kIndexBins / kCollectThreads;
  __shared__ uint32_t above[kCollectThreads / 32];
  const int thread = static_cast<int>(threadIdx.x);
  const int top = kIndexBins - 1 - kEach * thread;  // thread 0 has the largest keys
  uint32_t counts[kEach];
  uint32_t mine = 0;
  for (int i = 0; i < kEach; ++i) mine += counts[i] = bins[top - i];
  uint32_t before = mine;
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(kFullWarp, before, step);
    if (thread % 32 >= step) before += other;
  }
  if (thread % 32 == 31) above[thread / 32] = before;
  if (thread == 0) *lowest = 1;
  __syncthreads();
  before -= mine;
  for (int warp = 0; warp < thread / 32; ++warp) before += above[warp];
  if (before < wanted && wanted <= int64_t{before} + mine) {
    int bin = top;
    uint32_t sum = before + counts[0];
    for (int i = 1; i < kEach && sum < wanted; ++i) {
      sum += counts[i];
      --bin;
    }
    *lowest = max(1U, static_cast<uint32_t>(bin) << 20);
  }
  __syncthreads();
  return *lowest;
}

// What may be among the best goes to `kept`, in any order: key above, place below, so that of equal
// scores the first is the larger. Grid: parts of a list, rows of the piece, lists.
__global__ void __launch_bounds__(kCollectThreads) collect_kernel(const IndexDecode args) {
  enter();
  const IndexKernelArgs& a = args.a;
  const int64_t piece_row = blockIdx.y;
  const int which = static_cast<int>(blockIdx.z);
  const RowPlan plan = a.plan[a.first_row + piece_row];
  const List list = list_of(a, plan, piece_row, which);
  const int64_t first = int64_t{blockIdx.x} * kCollected;
  if (plan.settled || first >= list.n) return;
  __shared__ uint32_t room;
  uint32_t* bins = bins_of(args, piece_row, which);
  const uint32_t lowest = lowest_key(bins, list.wanted, &room);
  uint64_t* kept = kept_of(args, piece_row, which);
  const int64_t end = min(first + kCollected, list.n);
  for (int64_t i = first + threadIdx.x; i < first + kCollected; i += kCollectThreads) {
    const uint32_t key = i < end ? key_of(list.scores[i]) : 0;
    const unsigned found = __ballot_sync(kFullWarp, key >= lowest);
    if (found == 0) continue;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    uint32_t at = 0;
    if (lane == 0) at = atomicAdd(bins + kIndexBins, static_cast<uint32_t>(__popc(found)));
    at = __shfl_sync(kFullWarp, at, 0) + __popc(found & ((1U << lane) - 1U));
    if (key >= lowest && at < kIndexKept) {
      kept[at] = uint64_t{key} << 32 | (0xFFFFFFFFU - static_cast<uint32_t>(i));
    }
  }
}

// One exchange of a bitonic network: pairs `gap` apart, in runs of `run` that fall and rise in
// turn.
__device__ void exchange(uint64_t* values, int n, int run, int gap) {
  for (int i = threadIdx.x; i < n / 2; i += kChooseThreads) {
    const int low = i / gap * 2 * gap + i % gap;
    const uint64_t x = values[low];
    const uint64_t y = values[low + gap];
    if (((low & run) == 0) != (x < y)) continue;
    values[low] = y;
    values[low + gap] = x;
  }
}

// The largest first; n is a power of two.
__device__ void sort_descending(uint64_t* values, int n) {
  for (int run = 2; run <= n; run *= 2) {
    for (int gap = run / 2; gap > 0; gap /= 2) {
      __syncthreads();
      exchange(values, n, run, gap);
    }
  }
  __syncthreads();
}

// Fills with zeros up to the next power of two, which is returned.
__device__ int pad(uint64_t* values, int n) {
  int padded = 1;
  while (padded < n) padded *= 2;
  for (int i = n + static_cast<int>(threadIdx.x); i < padded; i += kChooseThreads) values[i] = 0;
  return padded;
}

// The wanted best of `kept`, by place. The low half of a value falls with the place.
__device__ void choose_kept(const IndexDecode& args, int64_t piece_row, int which,
                            uint64_t* values) {
  const IndexKernelArgs& a = args.a;
  const int64_t row = a.first_row + piece_row;
  const int n = static_cast<int>(bins_of(args, piece_row, which)[kIndexBins]);
  const int wanted = static_cast<int>(which == 0 ? a.K : a.P);
  const uint64_t* kept = kept_of(args, piece_row, which);
  for (int i = threadIdx.x; i < n; i += kChooseThreads) values[i] = kept[i];
  sort_descending(values, pad(values, n));
  const int chosen = min(n, wanted);
  for (int i = threadIdx.x; i < chosen; i += kChooseThreads) values[i] &= 0xFFFFFFFFU;
  sort_descending(values, pad(values, chosen));
  int32_t* out = which == 0 ? a.topk + row * a.topk_stride : a.pool_out + row * a.pool_stride;
  for (int i = threadIdx.x; i < wanted; i += kChooseThreads) {
    if (i >= chosen) {
      out[i] = -1;
      continue;
    }
    const int64_t place = 0xFFFFFFFFU - static_cast<uint32_t>(values[i]);
    out[i] = static_cast<int32_t>(which == 0 ? entry_at(a, row, place) : place);
  }
}

// Grid: rows of the piece, lists.
__global__ void __launch_bounds__(kChooseThreads) choose_kernel(const IndexDecode args) {
  extern __shared__ __align__(16) uint8_t kept_memory[];
  __shared__ ChooseRoom digits;
  enter();
  const IndexKernelArgs& a = args.a;
  const int64_t piece_row = blockIdx.x;
  const int which = static_cast<int>(blockIdx.y);
  const RowPlan plan = a.plan[a.first_row + piece_row];
  const uint32_t n = bins_of(args, piece_row, which)[kIndexBins];
  if (plan.settled || n > kIndexKept) {
    choose_list(a, piece_row, which, digits);
  } else {
    choose_kept(args, piece_row, which, reinterpret_cast<uint64_t*>(kept_memory));
  }
}

}  // namespace

cudaError_t launch_index_best(const IndexDecode& args, cudaStream_t stream) {
  const IndexKernelArgs& a = args.a;
  const auto rows = static_cast<unsigned>(a.n_piece);
  const unsigned lists = a.pool_out == nullptr ? 1 : 2;
  if (a.stride > 0) {
    const auto parts = static_cast<unsigned>((a.stride + kCollected - 1) / kCollected);
    const cudaError_t status =
        launch_dependent(collect_kernel, {dim3(parts, rows, lists), kCollectThreads}, args, stream);
    if (status != cudaSuccess) return status;
  }
  constexpr size_t kBytes = kIndexKept * sizeof(uint64_t);
  cudaFuncSetAttribute(choose_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(kBytes));
  return launch_dependent(choose_kernel, {dim3(rows, lists), kChooseThreads, kBytes}, args, stream);
}

}  // namespace fathom::cuda
