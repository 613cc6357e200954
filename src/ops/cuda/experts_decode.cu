#include "ops/cuda/experts_decode.h"

#include "ops/cuda/fp4_fragments.cuh"
#include "ops/cuda/launch.cuh"

namespace fathom::cuda {
namespace {

using decode::Cursor;
using decode::Fragments;
using decode::Place;

// One of the two products, with the fields of ExpertsDecode that it reads.
struct Product {
  ExpertsDecode args;
  const uint8_t* units;
  const float* row_scales;
  int n;
  int k;
};

struct Fp4Op {
  __device__ void fragments(uint32_t unit, Fragments& f) const {
    decode::fp4_fragments(unit, threadIdx.x, f);
  }
};

// The block's walk over the tiles of the active experts; every role takes the same one.
struct Walk {
  int item;
  int step;
  int tiles;
  int items;
  int units;  // of a tile
  __device__ explicit Walk(const Product& w)
      : item(static_cast<int>(blockIdx.x)),
        step(static_cast<int>(gridDim.x)),
        tiles(w.n / kPackedRows),
        items(tiles * __ldcg(w.args.routes.n_active)),
        units(w.k / kUnitColumns) {}
};

// The expert and the pairs of an item.
struct Item {
  int expert;
  int tile;
  int begin;
  int end;
  __device__ Item(const Product& w, const Walk& walk)
      : expert(__ldcg(w.args.routes.active + walk.item / walk.tiles)),
        tile(walk.item % walk.tiles),
        begin(__ldcg(w.args.routes.offsets + expert)),
        end(__ldcg(w.args.routes.offsets + expert + 1)) {}
};

template <typename S>
__device__ void produce(const Product& w, Walk walk, const decode::Ring<S>& ring) {
  if (threadIdx.x % 32 != 0) return;
  const uint64_t policy = ptx::evict_first_policy();
  Cursor<S::kStages> at;
  for (; walk.item < walk.items; walk.item += walk.step) {
    const Item item(w, walk);
    const size_t first = (static_cast<size_t>(item.expert) * walk.tiles + item.tile) * walk.units;
    for (int pair = item.begin; pair < item.end; pair += S::kColumns) {
      decode::load_units<S>(w.units + first * S::kUnitBytes, walk.units, ring, policy, at);
    }
  }
}

template <typename S, bool kGateUp>
__device__ void stage(const Product& w, Walk walk, int stager, const decode::Ring<S>& ring) {
  Cursor<S::kBuffers> at;
  for (; walk.item < walk.items; walk.item += walk.step) {
    const Item item(w, walk);
    for (int pair = item.begin; pair < item.end; pair += S::kColumns) {
      decode::stage_rows<S>(
          {kGateUp ? w.args.x : w.args.hidden, kGateUp ? w.args.x_scales : w.args.hidden_scales,
           kGateUp ? w.args.routes.pair_row : nullptr, pair, min(S::kColumns, item.end - pair), w.k,
           0, walk.units},
          stager, ring, at);
    }
  }
}

template <typename S, bool kGateUp>
__device__ void consume(const Product& w, Walk walk, const decode::Ring<S>& ring) {
  const Place me;
  decode::Cursors<S> at;
  int turn = 0;
  for (; walk.item < walk.items; walk.item += walk.step) {
    const Item item(w, walk);
    const float* scales = w.row_scales + static_cast<size_t>(item.expert) * w.n +
                          item.tile * kPackedRows + 16 * me.warp + me.g;
    const float lower = scales[0];
    const float upper = scales[8];
    for (int pair = item.begin; pair < item.end; pair += S::kColumns, ++turn) {
      float acc[S::kColumns / 2];
      decode::multiply_segment<S>(Fp4Op{}, walk.units, ring, at, acc);
#pragma unroll
      for (int i = 0; i < S::kColumns / 2; ++i)
        acc[i] = __fmul_rn(acc[i], i / 2 % 2 == 0 ? lower : upper);
      const decode::Parts parts = decode::exchange<S>(acc, ring, 1, 0, turn);
      const int pairs = min(S::kColumns, item.end - pair);
      if constexpr (kGateUp) {
        decode::write_hidden<S::kConsumerThreads>(
            parts,
            {w.args.hidden, w.args.hidden_scales, w.args.width, w.args.limit,
             w.args.routes.pair_weight},
            item.tile, pair, pairs);
      } else {
        decode::write_rows<S::kConsumerThreads>(parts, {w.args.out, w.n}, item.tile, pair, pairs);
      }
    }
  }
}

// What a role reads before the kernels in front of it are complete: weights; routes, and for the
// first product rows of x, where they are settled. Dependents start behind the wait, so that they
// in turn find settled what this kernel waited for.
template <typename S, bool kGateUp>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    experts_kernel(const __grid_constant__ Product w) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const decode::Ring<S> ring(shared);
  decode::start_barriers(ring, 1);
  const int warp = static_cast<int>(threadIdx.x) / 32 - S::kConsumerThreads / 32;
  const bool early = kGateUp ? w.args.settled && warp >= 0 : warp == 0;
  if (!early) ptx::wait_for_inputs();
  if (warp < 0) ptx::launch_dependents();
  const Walk walk(w);
  if (warp < 0) {
    consume<S, kGateUp>(w, walk, ring);
  } else if (warp == 0) {
    produce<S>(w, walk, ring);
  } else {
    stage<S, kGateUp>(w, walk, warp - 1, ring);
  }
}

template <bool kGateUp, int kColumns, int kChunk, int kStages, int kBlocks>
cudaError_t launch(const Product& w, cudaStream_t stream) {
  using S = decode::Shape<kColumns, kChunk, kStages, kFp4UnitBytes, kBlocks>;
  return decode::launch_clusters(
      experts_kernel<S, kGateUp>,
      {1, w.n / kPackedRows * w.args.max_active, kBlocks, S::kThreads, S::bytes(1)}, w, stream);
}

template <bool kGateUp>
cudaError_t dispatch(Product w, cudaStream_t stream) {
  if (w.n % kPackedRows != 0 || w.k % kUnitColumns != 0 || w.args.max_active < 1) {
    return cudaErrorInvalidValue;
  }
  // Experts with more pairs than columns read their weights again.
  if (w.args.columns <= 8) return launch<kGateUp, 8, 8, 7, 4>(w, stream);
  if (w.args.columns <= 16) return launch<kGateUp, 16, 4, 7, 4>(w, stream);
  return launch<kGateUp, 32, 4, 8, 2>(w, stream);
}

constexpr int kRouteThreads = 1024;
constexpr int kMaxPairs = 8192;
constexpr int kMaxExperts = 1024;

// Calls visit(p, rank) for each pair p of `expert`, in order; returns how many there are.
template <typename Visit>
__device__ int visit_pairs(const int16_t* ids, int pairs, int expert, Visit visit) {
  const unsigned lane = threadIdx.x % 32;
  int count = 0;
  for (int base = 0; base < pairs; base += 32) {
    const int p = base + static_cast<int>(lane);
    const bool mine = p < pairs && ids[p] == expert;
    const unsigned votes = __ballot_sync(0xFFFFFFFFU, mine);
    if (mine) visit(p, count + __popc(votes & ((1U << lane) - 1U)));
    count += __popc(votes);
  }
  return count;
}

// offsets and active list by the first warp.
__device__ void scan_counts(const int* counts, int experts, const Routes& routes) {
  const unsigned lane = threadIdx.x;
  int pairs = 0;
  int active = 0;
  for (int base = 0; base < experts; base += 32) {
    const int e = base + static_cast<int>(lane);
    const int count = e < experts ? counts[e] : 0;
    int sum = count;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, sum, step);
      if (static_cast<int>(lane) >= step) sum += other;
    }
    const unsigned votes = __ballot_sync(0xFFFFFFFFU, count > 0);
    if (e < experts) routes.offsets[e] = pairs + sum - count;
    if (count > 0) routes.active[active + __popc(votes & ((1U << lane) - 1U))] = e;
    pairs += __shfl_sync(0xFFFFFFFFU, sum, 31);
    active += __popc(votes);
  }
  if (lane == 0) {
    routes.offsets[experts] = pairs;
    *routes.n_active = active;
  }
}

__device__ void sort_row(const int* positions, int k, int* out) {
  int sorted[8];
  for (int j = 0; j < k; ++j) {
    const int value = positions[j];
    int at = j;
    for (; at > 0 && sorted[at - 1] > value; --at) sorted[at] = sorted[at - 1];
    sorted[at] = value;
  }
  for (int j = 0; j < k; ++j) out[j] = sorted[j];
}

__global__ void __launch_bounds__(kRouteThreads) group_routes_kernel(const GroupRoutes args) {
  extern __shared__ int positions[];  // [pairs]
  __shared__ int counts[kMaxExperts];
  const int pairs = args.rows * args.k;
  auto* ids = reinterpret_cast<int16_t*>(positions + pairs);
  ptx::launch_dependents();
  ptx::wait_for_inputs();
  for (int p = static_cast<int>(threadIdx.x); p < pairs; p += kRouteThreads) {
    ids[p] = static_cast<int16_t>(args.ids[p]);
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int e = warp; e < args.experts; e += kRouteThreads / 32) {
    const int count = visit_pairs(ids, pairs, e, [](int, int) {});
    if (threadIdx.x % 32 == 0) counts[e] = count;
  }
  __syncthreads();
  if (threadIdx.x < 32) scan_counts(counts, args.experts, args.routes);
  __syncthreads();
  for (int e = warp; e < args.experts; e += kRouteThreads / 32) {
    if (counts[e] == 0) continue;
    const int first = args.routes.offsets[e];
    visit_pairs(ids, pairs, e, [&](int p, int rank) {
      positions[p] = first + rank;
      args.routes.pair_row[first + rank] = p / args.k;
      args.routes.pair_weight[first + rank] = args.weights[p];
    });
  }
  __syncthreads();
  for (int r = static_cast<int>(threadIdx.x); r < args.rows; r += kRouteThreads) {
    sort_row(positions + r * args.k, args.k, args.routes.row_pairs + r * args.k);
  }
}

__global__ void combine_kernel(const CombineExperts args) {
  ptx::launch_dependents();
  ptx::wait_for_inputs();
  const int column = 8 * static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= args.d) return;
  const size_t row = blockIdx.y;
  float sum[8] = {};
  for (int j = 0; j <= args.k; ++j) {
    const uint16_t* from =
        j < args.k ? args.pairs + static_cast<size_t>(args.row_pairs[row * args.k + j]) * args.d
                   : args.shared + row * args.d;
    const uint4 v = *reinterpret_cast<const uint4*>(from + column);
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum[2 * i] = __fadd_rn(sum[2 * i], fast::widen(words[i] & 0xFFFFU));
      sum[2 * i + 1] = __fadd_rn(sum[2 * i + 1], fast::widen(words[i] >> 16));
    }
  }
  *reinterpret_cast<uint4*>(args.y + row * args.d + column) = {
      fast::narrow2(sum[0], sum[1]), fast::narrow2(sum[2], sum[3]), fast::narrow2(sum[4], sum[5]),
      fast::narrow2(sum[6], sum[7])};
}

}  // namespace

cudaError_t group_routes(const GroupRoutes& args, cudaStream_t stream) {
  const int pairs = args.rows * args.k;
  if (pairs < 1 || pairs > kMaxPairs || args.k > 8 || args.experts > kMaxExperts) {
    return cudaErrorInvalidValue;
  }
  const size_t shared = static_cast<size_t>(pairs) * 6;
  const cudaError_t status = cudaFuncSetAttribute(
      group_routes_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxPairs * 6);
  if (status != cudaSuccess) return status;
  return launch_dependent<GroupRoutes>(
      group_routes_kernel, {.blocks = dim3(1), .threads = kRouteThreads, .shared = shared}, args,
      stream);
}

cudaError_t experts_gate_up(const ExpertsDecode& args, cudaStream_t stream) {
  return dispatch<true>({args, args.gate_up_units, args.gate_up_scales, 2 * args.width, args.d},
                        stream);
}

cudaError_t experts_down(const ExpertsDecode& args, cudaStream_t stream) {
  return dispatch<false>({args, args.down_units, args.down_scales, args.d, args.width}, stream);
}

cudaError_t combine_experts(const CombineExperts& args, cudaStream_t stream) {
  if (args.d % 8 != 0) return cudaErrorInvalidValue;
  const dim3 grid((args.d / 8 + 127) / 128, args.rows);
  return launch_dependent<CombineExperts>(combine_kernel, {.blocks = grid, .threads = 128}, args,
                                          stream);
}

}  // namespace fathom::cuda
