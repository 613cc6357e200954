#include "ops/cuda/dense_decode.h"

#include "ops/cuda/decode_gemm.cuh"

namespace fathom::cuda {
namespace {

using decode::Cursor;
using decode::Fragments;
using decode::Place;
using decode::Segment;

// Fragments as they lie; the factors of the thread's rows from the unit's first two bytes.
template <bool kPaired>
struct DenseOp {
  __device__ void fragments(uint32_t unit, Fragments& f) const {
    const Place me;
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const uint4 v = ptx::shared_load16(unit + kUnitHeader + 2048 * step + 16 * threadIdx.x);
      f.a[step][0] = v.x;
      f.a[step][1] = v.y;
      f.a[step][2] = v.z;
      f.a[step][3] = v.w;
    }
    f.lower = fast::power(ptx::shared_load1(unit + (kPaired ? 0 : me.warp / 2)));
    f.upper = kPaired ? fast::power(ptx::shared_load1(unit + 1)) : f.lower;
  }
};

// The block's walk over tiles and groups of rows; every role takes the same one.
struct Walk {
  int segments;
  int rank;
  int tile;
  int step;
  Segment segment;
  __device__ explicit Walk(const DensePairDecode& w)
      : segments(w.segments),
        rank(static_cast<int>(blockIdx.x) % segments),
        tile(static_cast<int>(blockIdx.x) / segments),
        step(static_cast<int>(gridDim.x) / segments),
        segment(decode::segment_of(w.product.k / kUnitColumns, rank, segments)) {}
};

template <typename S>
__device__ void produce(const DenseDecode& w, Walk walk, const decode::Ring<S>& ring) {
  if (threadIdx.x % 32 != 0) return;
  const uint64_t policy = ptx::evict_first_policy();
  Cursor<S::kStages> at;
  for (; walk.tile < w.n / kPackedRows; walk.tile += walk.step) {
    const size_t first = static_cast<size_t>(walk.tile) * (w.k / kUnitColumns) + walk.segment.first;
    for (int row = 0; row < w.m; row += S::kColumns) {
      decode::load_units<S>(w.units + first * S::kUnitBytes, walk.segment.units, ring, policy, at);
    }
  }
}

template <typename S>
__device__ void stage(const DenseDecode& w, Walk walk, int stager, const decode::Ring<S>& ring) {
  ptx::wait_for_inputs();
  Cursor<S::kBuffers> at;
  for (; walk.tile < w.n / kPackedRows; walk.tile += walk.step) {
    for (int row = 0; row < w.m; row += S::kColumns) {
      decode::stage_rows<S>({w.x, w.x_scales, nullptr, row, min(S::kColumns, w.m - row), w.k,
                             walk.segment.first, walk.segment.units},
                            stager, ring, at);
    }
  }
}

template <typename S, bool kPaired>
__device__ void consume(const DensePairDecode& w, Walk walk, const decode::Ring<S>& ring) {
  const DenseDecode& product = w.product;
  ptx::wait_for_inputs();
  ptx::launch_dependents();
  if (walk.segments > 1) ptx::cluster_wait();
  decode::Cursors<S> at;
  int turn = 0;
  for (; walk.tile < product.n / kPackedRows; walk.tile += walk.step) {
    for (int row = 0; row < product.m; row += S::kColumns, ++turn) {
      float acc[S::kColumns / 2];
      decode::multiply_segment<S>(DenseOp<kPaired>{}, walk.segment.units, ring, at, acc);
      const decode::Parts parts = decode::exchange<S>(acc, ring, walk.segments, walk.rank, turn);
      const int rows = min(S::kColumns, product.m - row);
      if constexpr (kPaired) {
        decode::write_hidden<S::kConsumerThreads>(
            parts, {w.codes, w.scales, product.n / 2, w.limit, nullptr}, walk.tile, row, rows);
      } else {
        decode::write_rows<S::kConsumerThreads>(parts, {product.out, product.n}, walk.tile, row,
                                                rows);
      }
    }
  }
}

template <typename S, bool kPaired>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    dense_decode_kernel(const __grid_constant__ DensePairDecode w) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const decode::Ring<S> ring(shared);
  const Walk walk(w);
  decode::start_barriers(ring, w.segments);
  const bool clusters = walk.segments > 1;
  if (clusters) ptx::cluster_arrive_relaxed();
  const int warp = static_cast<int>(threadIdx.x) / 32 - S::kConsumerThreads / 32;
  if (warp < 0) {
    consume<S, kPaired>(w, walk, ring);
  } else {
    if (warp == 0) {
      produce<S>(w.product, walk, ring);
    } else {
      stage<S>(w.product, walk, warp - 1, ring);
    }
    __syncwarp();
    if (clusters) ptx::cluster_wait();
  }
}

constexpr int kSureBlocks = 216;

template <bool kPaired, int kColumns, int kChunk, int kStages, int kBlocks>
cudaError_t launch(const DensePairDecode& w, cudaStream_t stream) {
  using S = decode::Shape<kColumns, kChunk, kStages, kDenseUnitBytes, kBlocks>;
  return decode::launch_clusters(dense_decode_kernel<S, kPaired>,
                                 {w.segments, w.product.n / kPackedRows, kBlocks > 1 ? 2 : 1,
                                  S::kThreads, S::bytes(w.segments)},
                                 w, stream);
}

template <bool kPaired>
cudaError_t dispatch(DensePairDecode w, cudaStream_t stream) {
  const DenseDecode& product = w.product;
  const int units = product.k / kUnitColumns;
  if (product.n % kPackedRows != 0 || product.k % kUnitColumns != 0 || product.m < 1) {
    return cudaErrorInvalidValue;
  }
  w.segments = decode::dense_segments(product.n / kPackedRows, units);
  // Deep rings where two blocks a processor are sure to hold all clusters, otherwise room for
  // three.
  const bool deep = w.segments == 1 || product.n / kPackedRows * w.segments <= kSureBlocks;
  if (product.m <= 8) {
    return deep ? launch<kPaired, 8, 8, 8, 2>(w, stream) : launch<kPaired, 8, 8, 6, 3>(w, stream);
  }
  if (product.m <= 16) {
    return deep ? launch<kPaired, 16, 4, 8, 2>(w, stream) : launch<kPaired, 16, 4, 6, 3>(w, stream);
  }
  if (product.m <= 32) {
    return deep ? launch<kPaired, 32, 4, 6, 2>(w, stream) : launch<kPaired, 32, 2, 5, 3>(w, stream);
  }
  return launch<kPaired, 64, 2, 4, 2>(w, stream);
}

}  // namespace

cudaError_t dense_decode(const DenseDecode& product, cudaStream_t stream) {
  return dispatch<false>({product, nullptr, nullptr, 0.F}, stream);
}

cudaError_t dense_pair_decode(const DensePairDecode& product, cudaStream_t stream) {
  return dispatch<true>(product, stream);
}

}  // namespace fathom::cuda
