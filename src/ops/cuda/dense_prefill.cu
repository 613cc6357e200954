#include "ops/cuda/dense_prefill.h"

#include "ops/cuda/decode_gemm.cuh"
#include "ops/cuda/launch.cuh"

namespace fathom::cuda {
namespace {

using decode::Cursor;
using decode::Fragments;

// ---- rows ----

constexpr int kStageThreads = 256;

// Grid: pieces of 128 columns, pieces of 128 rows. A thread has 64 bytes of a row.
__global__ void __launch_bounds__(kStageThreads) stage_kernel(const StagedRows in) {
  enter();
  const int row = static_cast<int>(threadIdx.x) / 2;
  const int half = static_cast<int>(threadIdx.x) % 2;
  const int64_t source = int64_t{blockIdx.y} * kStagedRows + row;
  uint8_t* piece =
      in.pieces + (static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x) * kStagedPieceBytes;
  auto* factors = reinterpret_cast<float*>(piece + kStagedRows * 128);
  uint32_t exponents = 0;
  const size_t place = static_cast<size_t>(source) * in.k + static_cast<size_t>(blockIdx.x) * 128;
  const bool there = source < in.m;
  if (there) exponents = *reinterpret_cast<const uint32_t*>(in.x_scales + place / 32);
  const uint32_t two = __vmaxu4(exponents, exponents >> 16);
  const uint32_t top = max(two & 0xFFU, two >> 8 & 0xFFU);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int chunk = 4 * half + i;
    uint4 codes = {};
    if (there) {
      codes = *reinterpret_cast<const uint4*>(in.x + place + 16 * chunk);
      codes = decode::rebased(codes, top - (exponents >> (8 * (chunk / 2)) & 0xFFU));
    }
    *reinterpret_cast<uint4*>(piece + row * 128 + 16 * (chunk ^ (row & 7))) = codes;
  }
  if (half == 0) factors[row] = fast::power(top);
}

// ---- product ----

constexpr int kColumns = kStagedRows;  // rows of x
constexpr int kGroups = 2;             // warpgroups that multiply, a packed tile each
constexpr int kGroupThreads = 128;
constexpr int kThreads = (kGroups + 1) * kGroupThreads;
constexpr int kStages = 5;
constexpr int kUnitsAt = kStagedPieceBytes;
constexpr int kStageBytes = (kUnitsAt + kGroups * kDenseUnitBytes + 1023) / 1024 * 1024;
constexpr int kOutStride = kPackedRows * 2 + 16;  // of a column in shared memory
constexpr int kOutAt = kStages * kStageBytes;
constexpr int kBarriersAt = kOutAt + kGroups * kColumns * kOutStride;
constexpr int kSharedBytes = kBarriersAt + 16 * kStages;
static_assert(kSharedBytes <= 227 * 1024);
static_assert(kUnitsAt % 16 == 0 && kDenseUnitBytes % 16 == 0 && kBarriersAt % 8 == 0);

constexpr int kProcessors = 132;
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

struct Ring {
  uint32_t base;      // shared address of the stages
  uint32_t barriers;  // of `full`; `empty` follow
  __device__ uint32_t full(int stage) const { return barriers + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return barriers + 8 * (kStages + stage); }
};

__device__ void produce(const DensePrefill& w, const Ring& ring) {
  const int units = w.k / kUnitColumns;
  Cursor<kStages> at;
  for (int i = static_cast<int>(blockIdx.x); i < n_tiles(w); i += static_cast<int>(gridDim.x)) {
    const Tile tile = tile_at(w, i);
    const int groups = min(kGroups, w.n / kPackedRows - kGroups * tile.pair);
    const uint8_t* rows = w.pieces + static_cast<size_t>(tile.rows) * units * kStagedPieceBytes;
    const uint8_t* weights =
        w.units + static_cast<size_t>(kGroups * tile.pair) * units * kDenseUnitBytes;
    for (int u = 0; u < units; ++u, at.next()) {
      const uint32_t stage = ring.base + at.stage * kStageBytes;
      ptx::barrier_wait(ring.empty(at.stage), at.parity ^ 1);
      ptx::barrier_expect(ring.full(at.stage), kStagedPieceBytes + groups * kDenseUnitBytes);
      ptx::bulk_load(stage, rows + static_cast<size_t>(u) * kStagedPieceBytes, kStagedPieceBytes,
                     ring.full(at.stage));
      for (int group = 0; group < groups; ++group) {
        const size_t unit = static_cast<size_t>(group) * units + u;
        ptx::bulk_load(stage + kUnitsAt + group * kDenseUnitBytes, weights + unit * kDenseUnitBytes,
                       kDenseUnitBytes, ring.full(at.stage));
      }
    }
  }
}

template <bool kPaired>
__device__ void load_fragments(uint32_t unit, Fragments& f) {
  const uint32_t thread = threadIdx.x % kGroupThreads;
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

// acc = the products of `units` units.
template <bool kPaired>
__device__ void multiply(int units, int group, const Ring& ring, Cursor<kStages>& at,
                         float (&acc)[kColumns / 2]) {
#pragma unroll
  for (float& v : acc) v = 0;
  for (int unit = 0; unit < units; ++unit, at.next()) {
    const uint32_t stage = ring.base + at.stage * kStageBytes;
    Fragments f;
    ptx::barrier_wait(ring.full(at.stage), at.parity);
    load_fragments<kPaired>(stage + kUnitsAt + group * kDenseUnitBytes, f);
    float p[kColumns / 2];
    const uint64_t b = wgmma::descriptor(stage);
    wgmma::fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) wgmma::e4m3<kColumns>(p, f.a[i], b + 2 * i, i > 0);
    wgmma::commit();
    wgmma::wait<0>();
    decode::promote<kColumns>(acc, p, stage + kStagedRows * 128, f.lower, f.upper);
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::barrier_arrive(ring.empty(at.stage));
  }
}

__device__ void group_sync(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroupThreads) : "memory");
}

// The group's part of a tile, rounded, with a column of the product in kOutStride bytes.
__device__ void round_sums(const float (&sum)[kColumns / 2], uint8_t* room) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const int row = thread / 32 * 16 + thread % 32 / 4;
  const int t = thread % 4;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    const int column = 8 * (i / 4) + 2 * t + i % 2;
    *reinterpret_cast<uint16_t*>(room + column * kOutStride + (row + 8 * (i / 2 % 2)) * 2) =
        static_cast<uint16_t>(fast::narrow(sum[i]));
  }
}

// A column of the product is a row of the output.
__device__ void write_out(const DensePrefill& w, const Tile& tile, int group, const uint8_t* room) {
  const int first = tile.rows * kColumns;
  const int first_out = (kGroups * tile.pair + group) * kPackedRows;
  for (int i = static_cast<int>(threadIdx.x) % kGroupThreads; i < kColumns * 8;
       i += kGroupThreads) {
    const int column = i / 8;
    if (first + column >= w.m) break;
    *reinterpret_cast<uint4*>(w.out + static_cast<size_t>(first + column) * w.n + first_out +
                              i % 8 * 8) =
        *reinterpret_cast<const uint4*>(room + column * kOutStride + i % 8 * 16);
  }
}

// SwiGLU and A8 of a paired tile: 32 hidden values of a column are one A8 block, four of them a
// thread's (decode::write_hidden).
__device__ void write_hidden(const DensePairPrefill& w, const Tile& tile, int group,
                             const uint8_t* room) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const int i = thread % 8;
  const int first = tile.rows * kColumns;
  const int width = w.product.n / 2;
  for (int column = thread / 8; column < kColumns; column += kGroupThreads / 8) {
    const uint8_t* from = room + column * kOutStride + (16 * (i / 2) + 4 * (i % 2)) * 2;
    const uint2 gate = *reinterpret_cast<const uint2*>(from);
    const uint2 up = *reinterpret_cast<const uint2*>(from + 16);
    const auto value = [&](uint32_t g, uint32_t u) {
      return fast::swiglu(fast::widen(g), fast::widen(u), w.limit, 1.F);
    };
    const float4 h = {value(gate.x & 0xFFFFU, up.x & 0xFFFFU), value(gate.x >> 16, up.x >> 16),
                      value(gate.y & 0xFFFFU, up.y & 0xFFFFU), value(gate.y >> 16, up.y >> 16)};
    float amax = fmaxf(fmaxf(fabsf(h.x), fabsf(h.y)), fmaxf(fabsf(h.z), fabsf(h.w)));
    for (int step = 1; step < 8; step *= 2) {
      amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFU, amax, step));
    }
    if (first + column >= w.product.m) continue;
    const uint32_t scale = fast::a8_scale(amax);
    const float inverse = fast::power(254U - scale);
    const size_t at = static_cast<size_t>(first + column) * width +
                      static_cast<size_t>(kGroups * tile.pair + group) * 32;
    *reinterpret_cast<uint32_t*>(w.codes + at + 4 * i) =
        fast::e4m3x4(h.x * inverse, h.y * inverse, h.z * inverse, h.w * inverse);
    if (i == 0) w.scales[at / 32] = static_cast<uint8_t>(scale);
  }
}

template <bool kPaired, bool kSegmented>
__device__ void consume(const DensePairPrefill& pair, int group, const Ring& ring, uint8_t* room) {
  const DensePrefill& w = pair.product;
  const int units = w.k / kUnitColumns;
  Cursor<kStages> at;
  for (int i = static_cast<int>(blockIdx.x); i < n_tiles(w); i += static_cast<int>(gridDim.x)) {
    const Tile tile = tile_at(w, i);
    float sum[kColumns / 2];
    if constexpr (!kSegmented) {
      multiply<kPaired>(units, group, ring, at, sum);
    } else {
      multiply<kPaired>(decode::segment_of(units, 0, w.segments).units, group, ring, at, sum);
      for (int s = 1; s < w.segments; ++s) {
        float part[kColumns / 2];
        multiply<kPaired>(decode::segment_of(units, s, w.segments).units, group, ring, at, part);
#pragma unroll
        for (int v = 0; v < kColumns / 2; ++v) sum[v] = __fadd_rn(sum[v], part[v]);
      }
    }
    // The second of an odd number of packed tiles has read what lay in its place.
    if (kGroups * tile.pair + group >= w.n / kPackedRows) continue;
    round_sums(sum, room);
    group_sync(group);
    if constexpr (kPaired) {
      write_hidden(pair, tile, group, room);
    } else {
      write_out(w, tile, group, room);
    }
    group_sync(group);
  }
}

template <bool kPaired, bool kSegmented>
__global__ void __launch_bounds__(kThreads, 1)
    dense_prefill_kernel(const __grid_constant__ DensePairPrefill w) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const Ring ring = {ptx::shared_address(shared), ptx::shared_address(shared + kBarriersAt)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::barrier_init(ring.full(i), 1);
      ptx::barrier_init(ring.empty(i), kGroups * kGroupThreads / 32);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  ptx::wait_for_inputs();
  ptx::launch_dependents();
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  if (group == kGroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x % kGroupThreads == 0) produce(w.product, ring);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    consume<kPaired, kSegmented>(w, group, ring, shared + kOutAt + group * kColumns * kOutStride);
  }
}

template <bool kPaired, bool kSegmented>
cudaError_t launch(const DensePairPrefill& w, cudaStream_t stream) {
  const int pieces = (w.product.m + kColumns - 1) / kColumns;
  const int pairs = (w.product.n / kPackedRows + kGroups - 1) / kGroups;
  const auto kernel = dense_prefill_kernel<kPaired, kSegmented>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (status != cudaSuccess) return status;
  return launch_dependent(
      kernel,
      {static_cast<unsigned>(std::min(pieces * pairs, kProcessors)), kThreads, kSharedBytes}, w,
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
      stage_kernel, {dim3(static_cast<unsigned>(rows.k / kUnitColumns), pieces), kStageThreads},
      rows, stream);
}

cudaError_t dense_prefill(const DensePrefill& product, cudaStream_t stream) {
  return dispatch<false>({product, nullptr, nullptr, 0.F}, stream);
}

cudaError_t dense_pair_prefill(const DensePairPrefill& product, cudaStream_t stream) {
  return dispatch<true>(product, stream);
}

}  // namespace fathom::cuda
