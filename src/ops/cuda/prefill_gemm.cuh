#pragma once

// What the products for many rows share: a persistent block has 128 rows of x, as columns of the
// product, and two packed tiles of the weight (pack.h), one a warpgroup. One warp copies a piece of
// staged rows and a unit of each tile a stage; fragments, steps and sums are those of
// decode_gemm.cuh, so that a row gets the same bits.

#include "ops/cuda/decode_gemm.cuh"
#include "ops/cuda/dense_prefill.h"

namespace fathom::cuda::prefill {

using decode::Cursor;
using decode::Fragments;

constexpr int kColumns = kStagedRows;
constexpr int kGroups = 2;
constexpr int kGroupThreads = 128;
constexpr int kThreads = (kGroups + 1) * kGroupThreads;
constexpr int kOutStride = kPackedRows * 2 + 16;  // of a column in shared memory
constexpr int kProcessors = 132;

template <int kUnitBytes_, int kStages_>
struct Shape {
  static constexpr int kUnitBytes = kUnitBytes_;
  static constexpr int kStages = kStages_;
  static constexpr int kUnitsAt = kStagedPieceBytes;
  static constexpr int kStageBytes = (kUnitsAt + kGroups * kUnitBytes + 1023) / 1024 * 1024;
  static constexpr int kOutAt = kStages * kStageBytes;
  static constexpr int kBarriersAt = kOutAt + kGroups * kColumns * kOutStride;
  static constexpr int kBytes = kBarriersAt + 16 * kStages;
  static_assert(kBytes <= 227 * 1024);
  static_assert(kUnitsAt % 16 == 0 && kUnitBytes % 16 == 0 && kBarriersAt % 8 == 0);
};

template <class S>
struct Ring {
  uint32_t base;      // shared address of the stages
  uint32_t barriers;  // of `full`; `empty` follow
  __device__ explicit Ring(uint8_t* shared)
      : base(ptx::shared_address(shared)), barriers(ptx::shared_address(shared + S::kBarriersAt)) {}
  __device__ uint32_t full(int stage) const { return barriers + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return barriers + 8 * (S::kStages + stage); }
};

template <class S>
__device__ inline void start_barriers(const Ring<S>& ring) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      ptx::barrier_init(ring.full(i), 1);
      ptx::barrier_init(ring.empty(i), kGroups * kGroupThreads / 32);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
}

// What a block multiplies: staged pieces of its rows, and tiles of the weight, the second one, if
// there is one, behind the first.
struct Operands {
  const uint8_t* rows;
  const uint8_t* weights;
  int tiles;
  int units;
};

// By one thread.
template <class S>
__device__ inline void produce(const Operands& in, const Ring<S>& ring, Cursor<S::kStages>& at) {
  for (int u = 0; u < in.units; ++u, at.next()) {
    const uint32_t stage = ring.base + at.stage * S::kStageBytes;
    ptx::barrier_wait(ring.empty(at.stage), at.parity ^ 1);
    ptx::barrier_expect(ring.full(at.stage), kStagedPieceBytes + in.tiles * S::kUnitBytes);
    ptx::bulk_load(stage, in.rows + static_cast<size_t>(u) * kStagedPieceBytes, kStagedPieceBytes,
                   ring.full(at.stage));
    for (int tile = 0; tile < in.tiles; ++tile) {
      const size_t unit = static_cast<size_t>(tile) * in.units + u;
      ptx::bulk_load(stage + S::kUnitsAt + tile * S::kUnitBytes, in.weights + unit * S::kUnitBytes,
                     S::kUnitBytes, ring.full(at.stage));
    }
  }
}

// acc = the products of `units` units. Op::fragments brings a unit into the registers of thread
// `thread` of the warpgroup.
template <class S, class Op>
__device__ inline void multiply(const Op& op, int units, const Ring<S>& ring,
                                Cursor<S::kStages>& at, float (&acc)[kColumns / 2]) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
#pragma unroll
  for (float& v : acc) v = 0;
  for (int unit = 0; unit < units; ++unit, at.next()) {
    const uint32_t stage = ring.base + at.stage * S::kStageBytes;
    Fragments f;
    ptx::barrier_wait(ring.full(at.stage), at.parity);
    op.fragments(stage + S::kUnitsAt + group * S::kUnitBytes, threadIdx.x % kGroupThreads, f);
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

// All threads of a warpgroup.
__device__ inline void group_sync() {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroupThreads) : "memory");
}

// The warpgroup's sums, rounded, with a column of the product in kOutStride bytes of `room`.
__device__ inline void round_sums(const float (&sum)[kColumns / 2], uint8_t* room) {
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

// Rows first .. first + count - 1 of an output are the columns of a product; `tile` counts packed
// tiles of the weight.
struct Columns {
  int first;
  int count;
  int tile;
};

// out [.., n] from `room`.
__device__ inline void write_rows(const decode::Outputs& to, const Columns& c,
                                  const uint8_t* room) {
  for (int i = static_cast<int>(threadIdx.x) % kGroupThreads; i < kColumns * 8;
       i += kGroupThreads) {
    const int column = i / 8;
    if (column >= c.count) break;
    *reinterpret_cast<uint4*>(to.out + static_cast<size_t>(c.first + column) * to.n +
                              c.tile * kPackedRows + i % 8 * 8) =
        *reinterpret_cast<const uint4*>(room + column * kOutStride + i % 8 * 16);
  }
}

// SwiGLU and A8 of a paired tile: 32 hidden values of a column are one A8 block, four of them a
// thread's (decode::write_hidden).
__device__ inline void write_hidden(const decode::Hidden& out, const Columns& c,
                                    const uint8_t* room) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const int i = thread % 8;
  for (int column = thread / 8; column < kColumns; column += kGroupThreads / 8) {
    const bool exists = column < c.count;
    const uint8_t* from = room + column * kOutStride + (16 * (i / 2) + 4 * (i % 2)) * 2;
    const uint2 gate = *reinterpret_cast<const uint2*>(from);
    const uint2 up = *reinterpret_cast<const uint2*>(from + 16);
    const float weight = out.weights != nullptr && exists ? out.weights[c.first + column] : 1.F;
    const auto value = [&](uint32_t g, uint32_t u) {
      return fast::swiglu(fast::widen(g), fast::widen(u), out.limit, weight);
    };
    const float4 h = {value(gate.x & 0xFFFFU, up.x & 0xFFFFU), value(gate.x >> 16, up.x >> 16),
                      value(gate.y & 0xFFFFU, up.y & 0xFFFFU), value(gate.y >> 16, up.y >> 16)};
    float amax = fmaxf(fmaxf(fabsf(h.x), fabsf(h.y)), fmaxf(fabsf(h.z), fabsf(h.w)));
    for (int step = 1; step < 8; step *= 2) {
      amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFU, amax, step));
    }
    if (!exists) continue;
    const uint32_t scale = fast::a8_scale(amax);
    const float inverse = fast::power(254U - scale);
    const size_t at =
        static_cast<size_t>(c.first + column) * out.width + static_cast<size_t>(c.tile) * 32;
    *reinterpret_cast<uint32_t*>(out.codes + at + 4 * i) =
        fast::e4m3x4(h.x * inverse, h.y * inverse, h.z * inverse, h.w * inverse);
    if (i == 0) out.scales[at / 32] = static_cast<uint8_t>(scale);
  }
}

// --- rows ----------------------------------------------------------------------------------------

constexpr int kStageThreads = 256;

// One row of a piece of 128 rows by 128 columns, brought to one exponent; two threads have a row.
// `x` and `scales` begin at the row's 128 columns; null: the row does not exist.
__device__ inline void stage_row(const uint8_t* x, const uint8_t* scales, uint8_t* piece) {
  const int row = static_cast<int>(threadIdx.x) / 2;
  const int half = static_cast<int>(threadIdx.x) % 2;
  uint32_t exponents = 0;
  if (x != nullptr) exponents = *reinterpret_cast<const uint32_t*>(scales);
  const uint32_t two = __vmaxu4(exponents, exponents >> 16);
  const uint32_t top = max(two & 0xFFU, two >> 8 & 0xFFU);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int chunk = 4 * half + i;
    uint4 codes = {};
    if (x != nullptr) {
      codes = *reinterpret_cast<const uint4*>(x + 16 * chunk);
      codes = decode::rebased(codes, top - (exponents >> (8 * (chunk / 2)) & 0xFFU));
    }
    *reinterpret_cast<uint4*>(piece + row * 128 + 16 * (chunk ^ (row & 7))) = codes;
  }
  if (half == 0) {
    *reinterpret_cast<float*>(piece + kStagedRows * 128 + 4 * row) = fast::power(top);
  }
}

}  // namespace fathom::cuda::prefill
