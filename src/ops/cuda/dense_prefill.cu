#include "ops/cuda/dense_prefill.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/prefill_gemm.cuh"

namespace fathom::cuda {
namespace {

using decode::Cursor;
using decode::Fragments;
using prefill::kColumns;
using prefill::kGroups;
using S = prefill::Shape<kDenseUnitBytes, 5>;

// Grid: pieces of 128 columns, pieces of 128 rows.
__global__ void __launch_bounds__(prefill::kStageThreads) stage_kernel(const StagedRows in) {
  enter();
  const int64_t source = int64_t{blockIdx.y} * kStagedRows + threadIdx.x / 2;
  const size_t place = static_cast<size_t>(source) * in.k + static_cast<size_t>(blockIdx.x) * 128;
  const bool there = source < in.m;
  uint8_t* piece =
      in.pieces + (static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x) * kStagedPieceBytes;
  prefill::stage_row(there ? in.x + place : nullptr, in.x_scales + place / 32, piece);
}

// ---- product ----

constexpr int kBand = 16;  // pieces of rows whose tiles follow each other, so that L2 serves them

struct Tile {
  int rows;  // piece of rows
  int pair;  // of packed tiles
};
__device__ Tile tile_at(const DensePrefill& w, int i) {
  const int pieces = (w.m + kColumns - 1) / kColumns;
  const int pairs = (w.n / kPackedRows + kGroups - 1) / kGroups;
  const int band = i / (kBand * pairs);
  const int height = min(kBand, pieces - band * kBand);
  const int inside = i - band * kBand * pairs;
  return {band * kBand + inside % height, inside / height};
}
__device__ int n_tiles(const DensePrefill& w) {
  return (w.m + kColumns - 1) / kColumns * ((w.n / kPackedRows + kGroups - 1) / kGroups);
}

__device__ void produce(const DensePrefill& w, const prefill::Ring<S>& ring) {
  const int units = w.k / kUnitColumns;
  Cursor<S::kStages> at;
  for (int i = static_cast<int>(blockIdx.x); i < n_tiles(w); i += static_cast<int>(gridDim.x)) {
    const Tile tile = tile_at(w, i);
    prefill::produce<S>(
        {.rows = w.pieces + static_cast<size_t>(tile.rows) * units * kStagedPieceBytes,
         .weights = w.units + static_cast<size_t>(kGroups * tile.pair) * units * kDenseUnitBytes,
         .tiles = min(kGroups, w.n / kPackedRows - kGroups * tile.pair),
         .units = units},
        ring, at);
  }
}

template <bool kPaired>
struct DenseOp {
  __device__ void fragments(uint32_t unit, uint32_t thread, Fragments& f) const {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const uint4 v = ptx::shared_load16(unit + kUnitHeader + 2048 * step + 16 * thread);
      f.a[step][0] = v.x;
      f.a[step][1] = v.y;
      f.a[step][2] = v.z;
      f.a[step][3] = v.w;
    }
    f.lower = fast::power(ptx::shared_load1(unit + (kPaired ? 0 : thread / 64)));
    f.upper = kPaired ? fast::power(ptx::shared_load1(unit + 1)) : f.lower;
  }
};

template <bool kPaired, bool kSegmented>
__device__ void consume(const DensePairPrefill& pair, const prefill::Ring<S>& ring,
                        uint8_t* shared) {
  const DensePrefill& w = pair.product;
  const int group = static_cast<int>(threadIdx.x) / prefill::kGroupThreads;
  const int units = w.k / kUnitColumns;
  const DenseOp<kPaired> op;
  uint8_t* room = shared + S::kOutAt + group * kColumns * prefill::kOutStride;
  Cursor<S::kStages> at;
  for (int i = static_cast<int>(blockIdx.x); i < n_tiles(w); i += static_cast<int>(gridDim.x)) {
    const Tile tile = tile_at(w, i);
    float sum[kColumns / 2];
    if constexpr (!kSegmented) {
      prefill::multiply<S>(op, units, ring, at, sum);
    } else {
      prefill::multiply<S>(op, decode::segment_of(units, 0, w.segments).units, ring, at, sum);
      for (int s = 1; s < w.segments; ++s) {
        float part[kColumns / 2];
        prefill::multiply<S>(op, decode::segment_of(units, s, w.segments).units, ring, at, part);
#pragma unroll
        for (int v = 0; v < kColumns / 2; ++v) sum[v] = __fadd_rn(sum[v], part[v]);
      }
    }
    const int first = tile.rows * kColumns;
    const prefill::Columns columns = {first, min(kColumns, w.m - first),
                                      kGroups * tile.pair + group};
    // The second of an odd number of packed tiles has read what lay in its place.
    if (columns.tile >= w.n / kPackedRows) continue;
    prefill::round_sums(sum, room);
    prefill::group_sync();
    if constexpr (kPaired) {
      prefill::write_hidden({pair.codes, pair.scales, w.n / 2, pair.limit, nullptr}, columns, room);
    } else {
      prefill::write_rows({w.out, w.n}, columns, room);
    }
    prefill::group_sync();
  }
}

template <bool kPaired, bool kSegmented>
__global__ void __launch_bounds__(prefill::kThreads, 1)
    dense_prefill_kernel(const __grid_constant__ DensePairPrefill w) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const prefill::Ring<S> ring(shared);
  prefill::start_barriers(ring);
  ptx::wait_for_inputs();
  ptx::launch_dependents();
  if (threadIdx.x / prefill::kGroupThreads == kGroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x % prefill::kGroupThreads == 0) produce(w.product, ring);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    consume<kPaired, kSegmented>(w, ring, shared);
  }
}

template <bool kPaired, bool kSegmented>
cudaError_t launch(const DensePairPrefill& w, cudaStream_t stream) {
  const int pieces = (w.product.m + kColumns - 1) / kColumns;
  const int pairs = (w.product.n / kPackedRows + kGroups - 1) / kGroups;
  const auto kernel = dense_prefill_kernel<kPaired, kSegmented>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes);
  if (status != cudaSuccess) return status;
  const int blocks = std::min(pieces * pairs, prefill::kProcessors);
  return launch_dependent(kernel, {static_cast<unsigned>(blocks), prefill::kThreads, S::kBytes}, w,
                          stream);
}

template <bool kPaired>
cudaError_t dispatch(DensePairPrefill w, cudaStream_t stream) {
  DensePrefill& product = w.product;
  if (product.n % kPackedRows != 0 || product.k % kUnitColumns != 0 || product.m < 1) {
    return cudaErrorInvalidValue;
  }
  product.segments = decode::dense_segments(product.n / kPackedRows, product.k / kUnitColumns);
  return product.segments == 1 ? launch<kPaired, false>(w, stream)
                               : launch<kPaired, true>(w, stream);
}

}  // namespace

cudaError_t stage_rows(const StagedRows& rows, cudaStream_t stream) {
  if (rows.k % kUnitColumns != 0 || rows.m < 1) return cudaErrorInvalidValue;
  const auto pieces = static_cast<unsigned>((rows.m + kStagedRows - 1) / kStagedRows);
  return launch_dependent(
      stage_kernel,
      {dim3(static_cast<unsigned>(rows.k / kUnitColumns), pieces), prefill::kStageThreads}, rows,
      stream);
}

cudaError_t dense_prefill(const DensePrefill& product, cudaStream_t stream) {
  return dispatch<false>({product, nullptr, nullptr, 0.F}, stream);
}

cudaError_t dense_pair_prefill(const DensePairPrefill& product, cudaStream_t stream) {
  return dispatch<true>(product, stream);
}

}  // namespace fathom::cuda
