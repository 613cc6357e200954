#include "ops/cuda/experts_prefill.h"

#include "ops/cuda/fp4_fragments.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/prefill_gemm.cuh"

namespace fathom::cuda {
namespace {

using decode::Cursor;
using decode::Fragments;
using prefill::kColumns;
using prefill::kGroups;
using prefill::kGroupThreads;
using S = prefill::Shape<kFp4UnitBytes, 7>;

// ---- tiles ----

// One warp.
__global__ void __launch_bounds__(32) tile_kernel(const ExpertsPrefill w) {
  enter();
  const int lane = static_cast<int>(threadIdx.x);
  const int experts = w.product.experts;
  const int* offsets = w.product.routes.offsets;
  int tiles = 0;
  for (int base = 0; base < experts; base += 32) {
    const int e = base + lane;
    const int first = e < experts ? offsets[e] : 0;
    const int count = e < experts ? offsets[e + 1] - first : 0;
    const int mine = (count + kColumns - 1) / kColumns;
    int sum = mine;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, sum, step);
      if (lane >= step) sum += other;
    }
    for (int i = 0; i < mine; ++i) {
      w.tiles[tiles + sum - mine + i] = {e, first + i * kColumns,
                                         min(kColumns, count - i * kColumns)};
    }
    tiles += __shfl_sync(0xFFFFFFFFU, sum, 31);
  }
  if (lane == 0) *w.n_tiles = tiles;
}

// ---- rows ----

struct StagePairs {
  const ExpertTile* tiles;
  const int* n_tiles;
  const int* rows;  // of x, of the pairs; null: pair p has row p
  const uint8_t* x;
  const uint8_t* x_scales;
  int k;
  uint8_t* pieces;
};

// Grid: pieces of 128 columns, tiles.
__global__ void __launch_bounds__(prefill::kStageThreads) stage_kernel(const StagePairs in) {
  enter();
  if (static_cast<int>(blockIdx.y) >= *in.n_tiles) return;
  const ExpertTile tile = in.tiles[blockIdx.y];
  const int column = static_cast<int>(threadIdx.x) / 2;
  const bool there = column < tile.count;
  const int pair = tile.first + (there ? column : 0);
  const int row = in.rows == nullptr ? pair : in.rows[pair];
  const size_t place = static_cast<size_t>(row) * in.k + static_cast<size_t>(blockIdx.x) * 128;
  uint8_t* piece =
      in.pieces + (static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x) * kStagedPieceBytes;
  prefill::stage_row(there ? in.x + place : nullptr, in.x_scales + place / 32, piece);
}

// ---- products ----

struct Product {
  ExpertsPrefill w;
  const uint8_t* units;
  const float* row_scales;
  int n;
  int k;
};

// The block's walk over tiles of pairs and, inside them, two packed tiles at a time.
struct Walk {
  int item;
  int step;
  int pairs;  // of packed tiles
  int items;
  int units;
  __device__ explicit Walk(const Product& p)
      : item(static_cast<int>(blockIdx.x)),
        step(static_cast<int>(gridDim.x)),
        pairs((p.n / kPackedRows + kGroups - 1) / kGroups),
        items(*p.w.n_tiles * pairs),
        units(p.k / kUnitColumns) {}
};

__device__ void produce(const Product& p, Walk walk, const prefill::Ring<S>& ring) {
  Cursor<S::kStages> at;
  for (; walk.item < walk.items; walk.item += walk.step) {
    const int tile = walk.item / walk.pairs;
    const int packed = kGroups * (walk.item % walk.pairs);
    const size_t first = static_cast<size_t>(p.w.tiles[tile].expert) * (p.n / kPackedRows) + packed;
    prefill::produce<S>(
        {.rows = p.w.pieces + static_cast<size_t>(tile) * walk.units * kStagedPieceBytes,
         .weights = p.units + first * walk.units * kFp4UnitBytes,
         .tiles = min(kGroups, p.n / kPackedRows - packed),
         .units = walk.units},
        ring, at);
  }
}

struct Fp4Op {
  __device__ void fragments(uint32_t unit, uint32_t thread, Fragments& f) const {
    decode::fp4_fragments(unit, thread, f);
  }
};

template <bool kGateUp>
__device__ void consume(const Product& p, Walk walk, const prefill::Ring<S>& ring,
                        uint8_t* shared) {
  const ExpertsDecode& args = p.w.product;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  uint8_t* room = shared + S::kOutAt + group * kColumns * prefill::kOutStride;
  Cursor<S::kStages> at;
  for (; walk.item < walk.items; walk.item += walk.step) {
    const ExpertTile tile = p.w.tiles[walk.item / walk.pairs];
    const prefill::Columns columns = {tile.first, tile.count,
                                      kGroups * (walk.item % walk.pairs) + group};
    float sum[kColumns / 2];
    prefill::multiply<S>(Fp4Op{}, walk.units, ring, at, sum);
    // The second of an odd number of packed tiles has read what lay in its place.
    if (columns.tile >= p.n / kPackedRows) continue;
    const float* scales = p.row_scales + static_cast<size_t>(tile.expert) * p.n +
                          columns.tile * kPackedRows + thread / 32 * 16 + thread % 32 / 4;
    const float lower = scales[0];
    const float upper = scales[8];
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      sum[i] = __fmul_rn(sum[i], i / 2 % 2 == 0 ? lower : upper);
    }
    prefill::round_sums(sum, room);
    prefill::group_sync();
    if constexpr (kGateUp) {
      prefill::write_hidden(
          {args.hidden, args.hidden_scales, args.width, args.limit, args.routes.pair_weight},
          columns, room);
    } else {
      prefill::write_rows({args.out, p.n}, columns, room);
    }
    prefill::group_sync();
  }
}

template <bool kGateUp>
__global__ void __launch_bounds__(prefill::kThreads, 1)
    experts_prefill_kernel(const __grid_constant__ Product p) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const prefill::Ring<S> ring(shared);
  prefill::start_barriers(ring);
  ptx::wait_for_inputs();
  ptx::launch_dependents();
  if (threadIdx.x / kGroupThreads == kGroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x % kGroupThreads == 0) produce(p, Walk(p), ring);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    consume<kGateUp>(p, Walk(p), ring, shared);
  }
}

template <bool kGateUp>
cudaError_t launch(const Product& p, cudaStream_t stream) {
  const auto kernel = experts_prefill_kernel<kGateUp>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes);
  if (status != cudaSuccess) return status;
  return launch_dependent(kernel, {prefill::kProcessors, prefill::kThreads, S::kBytes}, p, stream);
}

cudaError_t stage(const ExpertsPrefill& w, const StagePairs& rows, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(rows.k / kUnitColumns),
                  static_cast<unsigned>(w.most_tiles()));
  return launch_dependent(stage_kernel, {grid, prefill::kStageThreads}, rows, stream);
}

}  // namespace

cudaError_t experts_prefill(const ExpertsPrefill& w, cudaStream_t stream) {
  const ExpertsDecode& e = w.product;
  if (e.d % kUnitColumns != 0 || e.width % kUnitColumns != 0 || w.pairs < 1) {
    return cudaErrorInvalidValue;
  }
  cudaError_t status = launch_dependent(tile_kernel, {1, 32}, w, stream);
  if (status == cudaSuccess) {
    status =
        stage(w, {w.tiles, w.n_tiles, e.routes.pair_row, e.x, e.x_scales, e.d, w.pieces}, stream);
  }
  if (status == cudaSuccess) {
    status = launch<true>({w, e.gate_up_units, e.gate_up_scales, 2 * e.width, e.d}, stream);
  }
  if (status == cudaSuccess) {
    status = stage(w, {w.tiles, w.n_tiles, nullptr, e.hidden, e.hidden_scales, e.width, w.pieces},
                   stream);
  }
  if (status == cudaSuccess) {
    status = launch<false>({w, e.down_units, e.down_scales, e.d, e.width}, stream);
  }
  return status;
}

}  // namespace fathom::cuda
