#pragma once

// What the products for few rows share: persistent blocks that stream packed weights (pack.h)
// through a ring in shared memory. A tile is 64 packed rows of the weight; the blocks of a cluster
// are the segments of its columns, each walks the same list of tiles. Three roles in a block:
//   consumers  one warpgroup: fragments from shared memory to registers, tensor cores, sums
//   producer   one warp: bulk copies of weight units, from the start, before the inputs are waited
//   for stagers    warps that bring the rows of x of a segment into the form the tensor cores read
// Weights are the A operand, from registers; rows of x are the columns of the product.
//
// Summation tree of an output, a function of the weight's shape alone: the tensor core adds a unit
// of 128 columns in four steps of 32; units are scaled and added in order in FP32 inside a segment;
// segments are added in order. Row counts, neighbours, grid and launch order cannot change it.

#include <algorithm>

#include "ops/cuda/numbers.cuh"
#include "ops/cuda/pack.h"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/wgmma.cuh"

namespace fathom::cuda::decode {

// --- the cut of K --------------------------------------------------------------------------------

// Segments of a dense weight, 1 to 8: the number for which kSlots blocks finish first, when the
// ends of a tile cost as much as eight units, four without an exchange.
constexpr int kSlots = 264;
constexpr int dense_segments(int tiles, int units) {
  int best = 1;
  int best_time = 1 << 30;
  for (int s = 1; s <= 8 && s <= units; ++s) {
    const int clusters = kSlots / s;
    const int rounds = (tiles + clusters - 1) / clusters;
    const int time = rounds * ((units + s - 1) / s + (s == 1 ? 4 : 8));
    if (time < best_time) {
      best = s;
      best_time = time;
    }
  }
  return best;
}

struct Segment {
  int first;
  int units;
};
__device__ inline Segment segment_of(int units, int rank, int segments) {
  const int first = rank * units / segments;
  return {first, (rank + 1) * units / segments - first};
}

// --- shape of a block ----------------------------------------------------------------------------

constexpr int kStep = 2;  // units that a stager loads before it stores

// kColumns rows of x at a time, kChunk units of them in each of two buffers; kStages units of
// kUnitBytes in flight; kBlocks share a processor, those of the next kernel included.
template <int kColumns_, int kChunk_, int kStages_, int kUnitBytes_, int kBlocks_>
struct Shape {
  static constexpr int kColumns = kColumns_;
  static constexpr int kChunk = kChunk_;
  static constexpr int kBuffers = 2;
  static constexpr int kStages = kStages_;
  static constexpr int kUnitBytes = kUnitBytes_;
  static constexpr int kBlocks = kBlocks_;
  static constexpr int kConsumerThreads = 128;
  static constexpr int kStagers = 3;                  // warps
  static constexpr int kStagerGroups = kColumns / 8;  // of eight columns
  static constexpr int kThreads = kConsumerThreads + 32 + 32 * kStagers;

  static constexpr int kRowsBytes = kChunk * kColumns * 128;
  static_assert(kChunk / kStep * kStagerGroups >= kStagers, "every stager has work");
  static constexpr int kRowsAt = 0;  // [buffer][unit][columns][128], swizzled
  static constexpr int kUnitsAt = kBuffers * kRowsBytes;
  static constexpr int kScalesAt = kUnitsAt + kStages * kUnitBytes;  // [buffer][unit][columns]
  static constexpr int kBarriersAt = kScalesAt + kBuffers * kChunk * kColumns * 4;
  static constexpr int kInboxAt = kBarriersAt + 16 * kStages + 48;  // [2][segment][columns][64]
  static_assert(kInboxAt % 16 == 0 && kScalesAt % 16 == 0);
  // Places for a part of every segment, parts being whole columns.
  __host__ __device__ static constexpr int inbox_columns(int segments) {
    return segments * ((kColumns + segments - 1) / segments);
  }
  static constexpr int bytes(int segments) { return kInboxAt + 2 * inbox_columns(segments) * 256; }
};

// A block's shared memory and its barriers.
template <typename S>
struct Ring {
  uint8_t* shared;
  uint32_t base;  // shared address of the barriers
  __device__ explicit Ring(uint8_t* memory)
      : shared(memory), base(ptx::shared_address(memory + S::kBarriersAt)) {}
  __device__ uint32_t full(int stage) const { return base + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return base + 8 * (S::kStages + stage); }
  __device__ uint32_t inbox(int buffer) const { return base + 8 * (2 * S::kStages + buffer); }
  __device__ uint32_t rows_full(int buffer) const {
    return base + 8 * (2 * S::kStages + 2 + buffer);
  }
  __device__ uint32_t rows_empty(int buffer) const {
    return base + 8 * (2 * S::kStages + 4 + buffer);
  }
};

template <typename S>
__device__ inline void start_barriers(const Ring<S>& ring, int segments) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      ptx::barrier_init(ring.full(i), 1);
      ptx::barrier_init(ring.empty(i), S::kConsumerThreads / 32);
    }
    for (int i = 0; i < 2; ++i) {
      ptx::barrier_init(ring.inbox(i), segments * S::kConsumerThreads / 32);
      ptx::barrier_init(ring.rows_full(i), S::kStagers);
      ptx::barrier_init(ring.rows_empty(i), S::kConsumerThreads / 32);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
}

// A stage of the ring and the parity of its current use.
template <int kStages>
struct Cursor {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

template <typename S>
struct Cursors {
  Cursor<S::kStages> unit;
  Cursor<S::kBuffers> rows;
};

template <int kThreads>
__device__ inline void consumers_sync() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// --- producer ------------------------------------------------------------------------------------

template <typename S>
__device__ inline void load_units(const uint8_t* units, int count, const Ring<S>& ring,
                                  uint64_t policy, Cursor<S::kStages>& at) {
  for (int u = 0; u < count; ++u, at.next()) {
    ptx::barrier_wait(ring.empty(at.stage), at.parity ^ 1);
    ptx::barrier_expect(ring.full(at.stage), S::kUnitBytes);
    ptx::bulk_load(ptx::shared_address(ring.shared + S::kUnitsAt + at.stage * S::kUnitBytes),
                   units + static_cast<size_t>(u) * S::kUnitBytes, S::kUnitBytes,
                   ring.full(at.stage), policy);
  }
}

// --- stagers -------------------------------------------------------------------------------------

// Rows of x of a tile: A8 codes [.., k] and E8M0 scales [.., k / 32].
struct Rows {
  const uint8_t* codes;
  const uint8_t* scales;
  const int* index;  // row of x of column c; null: column c is row c
  int first;         // columns first .. first + count - 1 exist
  int count;
  int k;
  int first_unit;
  int units;
};

// 16 codes of a group of 32, brought to the largest exponent of their 128 columns.
__device__ inline uint4 rebased(uint4 codes, uint32_t shift) {
  if (shift == 0) return codes;
  return {fast::lowered_e4m3x4(codes.x, shift), fast::lowered_e4m3x4(codes.y, shift),
          fast::lowered_e4m3x4(codes.z, shift), fast::lowered_e4m3x4(codes.w, shift)};
}

// What one call of stage_units brings, and where to: the eight columns of a group, units first ..
// first + kStep - 1 of the chunk.
struct StagePart {
  int group;
  int first;
  uint8_t* rows;
  float* scales;
  uint32_t empty;  // barrier and parity to wait for before writing
  uint32_t parity;
};

// One warp's share of the rows: a lane has chunks lane % 4 and lane % 4 + 4 (of 16 bytes) of column
// lane / 4 of the group. Columns without a row are left as they are: they cannot reach the others.
// Everything is loaded before the buffer is waited for, past L1: it may be read before the kernel
// has waited for the one in front of it.
template <typename S>
__device__ inline void stage_units(const Rows& in, const StagePart& part) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int chunk = lane % 4;
  const int column = 8 * part.group + lane / 4;
  const bool there = column < in.count;
  uint4 low[kStep];
  uint4 high[kStep];
  uint32_t exponents[kStep];
  if (there) {
    const int row = in.index == nullptr ? in.first + column : __ldcg(in.index + in.first + column);
    const size_t place = static_cast<size_t>(row) * in.k +
                         static_cast<size_t>(in.first_unit + part.first) * kUnitColumns;
#pragma unroll
    for (int u = 0; u < kStep; ++u) {
      if (part.first + u >= in.units) break;
      const uint8_t* from = in.codes + place + u * kUnitColumns + 16 * chunk;
      low[u] = __ldcg(reinterpret_cast<const uint4*>(from));
      high[u] = __ldcg(reinterpret_cast<const uint4*>(from + 64));
      exponents[u] = __ldcg(reinterpret_cast<const uint32_t*>(in.scales + place / 32 + 4 * u));
    }
  }
  ptx::barrier_wait(part.empty, part.parity);
  if (!there) return;
#pragma unroll
  for (int u = 0; u < kStep; ++u) {
    if (part.first + u >= in.units) break;
    const uint32_t two = __vmaxu4(exponents[u], exponents[u] >> 16);
    const uint32_t top = max(two & 0xFFU, two >> 8 & 0xFFU);
    const uint32_t mine = exponents[u] >> (8 * (chunk / 2));
    uint8_t* to = part.rows + ((part.first + u) * S::kColumns + column) * 128;
    *reinterpret_cast<uint4*>(to + 16 * (chunk ^ (column & 7))) =
        rebased(low[u], top - (mine & 0xFFU));
    *reinterpret_cast<uint4*>(to + 16 * ((chunk + 4) ^ (column & 7))) =
        rebased(high[u], top - (mine >> 16 & 0xFFU));
    if (chunk == 0) part.scales[(part.first + u) * S::kColumns + column] = fast::power(top);
  }
}

// The rows of a segment, chunk by chunk.
template <typename S>
__device__ inline void stage_rows(Rows in, int stager, const Ring<S>& ring,
                                  Cursor<S::kBuffers>& at) {
  constexpr int kSteps = S::kChunk / kStep;
  constexpr int kParts = kSteps * S::kStagerGroups;
  const int end = in.first_unit + in.units;
  for (; in.first_unit < end; in.first_unit += S::kChunk, at.next()) {
    in.units = min(S::kChunk, end - in.first_unit);
    uint8_t* rows = ring.shared + S::kRowsAt + at.stage * S::kRowsBytes;
    auto* scales =
        reinterpret_cast<float*>(ring.shared + S::kScalesAt) + at.stage * S::kChunk * S::kColumns;
    for (int part = stager; part < kParts; part += S::kStagers) {
      stage_units<S>(in, {part / kSteps, part % kSteps * kStep, rows, scales,
                          ring.rows_empty(at.stage), at.parity ^ 1});
    }
    ptx::proxy_fence();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::barrier_arrive(ring.rows_full(at.stage));
  }
}

// --- consumers -----------------------------------------------------------------------------------

struct Place {
  int warp = static_cast<int>(threadIdx.x) / 32;
  int g = static_cast<int>(threadIdx.x) % 32 / 4;
  int t = static_cast<int>(threadIdx.x) % 4;
};

// A unit in registers: fragments, and the factors of the thread's rows g and g + 8.
struct Fragments {
  uint32_t a[4][4];
  float lower;
  float upper;
};

// acc += p x (row factor x column factor); scales: shared address of the columns' factors.
template <int kN>
__device__ inline void promote(float (&acc)[kN / 2], const float (&p)[kN / 2], uint32_t scales,
                               float lower, float upper) {
  const uint32_t t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < kN / 8; ++j) {
    const uint2 bits = ptx::shared_load8(scales + 32 * j + 8 * t);
    const float even = __uint_as_float(bits.x);
    const float odd = __uint_as_float(bits.y);
    acc[4 * j] = __fmaf_rn(p[4 * j], even * lower, acc[4 * j]);
    acc[4 * j + 1] = __fmaf_rn(p[4 * j + 1], odd * lower, acc[4 * j + 1]);
    acc[4 * j + 2] = __fmaf_rn(p[4 * j + 2], even * upper, acc[4 * j + 2]);
    acc[4 * j + 3] = __fmaf_rn(p[4 * j + 3], odd * upper, acc[4 * j + 3]);
  }
}

// The sums of one segment. Op::fragments brings a unit from shared memory into registers. The other
// blocks of the processor fill the waits.
template <typename S, typename Op>
__device__ inline void multiply_segment(const Op& op, int units, const Ring<S>& ring,
                                        Cursors<S>& at, float (&acc)[S::kColumns / 2]) {
  constexpr int kN = S::kColumns;
  const bool arrives = threadIdx.x % 32 == 0;
  uint32_t base = ptx::shared_address(ring.shared);
  asm volatile("" : "+r"(base));
#pragma unroll
  for (float& v : acc) v = 0;
  for (int chunk = 0; chunk < units; chunk += S::kChunk, at.rows.next()) {
    uint32_t rows = base + S::kRowsAt + at.rows.stage * S::kRowsBytes;
    uint32_t scales = base + S::kScalesAt + at.rows.stage * S::kChunk * kN * 4;
    const int count = min(S::kChunk, units - chunk);
    ptx::barrier_wait(ring.rows_full(at.rows.stage), at.rows.parity);
    for (int unit = 0; unit < count; ++unit, at.unit.next(), rows += kN * 128, scales += kN * 4) {
      Fragments f;
      ptx::barrier_wait(ring.full(at.unit.stage), at.unit.parity);
      op.fragments(base + S::kUnitsAt + at.unit.stage * S::kUnitBytes, f);
      float p[kN / 2];
      const uint64_t b = wgmma::descriptor(rows);
      wgmma::fence();
#pragma unroll
      for (int i = 0; i < 4; ++i) wgmma::e4m3<kN>(p, f.a[i], b + 2 * i, i > 0);
      wgmma::commit();
      __syncwarp();
      if (arrives) ptx::barrier_arrive(ring.empty(at.unit.stage));
      wgmma::wait<0>();
      promote<kN>(acc, p, scales, f.lower, f.upper);
    }
    __syncwarp();
    if (arrives) ptx::barrier_arrive(ring.rows_empty(at.rows.stage));
  }
}

// The sums of the part of the tile that a block folds: value v (column v / 64, tile row v % 64) of
// segment s is at from[s stride + v - first].
struct Parts {
  const float* from;
  int stride;
  int segments;
  int first;
  int count;
};

// Exchanges sums inside the cluster, in whole columns, from registers to the block that folds them.
// `turn` counts the calls of this block; a buffer is used again after two turns, when every block
// has folded it: it folds turn t before it sends turn t + 1, and nobody ends turn t + 1 without
// that.
template <typename S>
__device__ inline Parts exchange(const float (&acc)[S::kColumns / 2], const Ring<S>& ring,
                                 int segments, int rank, int turn) {
  const Place me;
  const int buffer = turn & 1;
  auto* inbox = reinterpret_cast<float*>(ring.shared + S::kInboxAt) +
                buffer * S::inbox_columns(segments) * 64;
  const int row = 16 * me.warp + me.g;
  if (segments == 1) {
#pragma unroll
    for (int i = 0; i < S::kColumns / 2; ++i) {
      const int column = 8 * (i / 4) + 2 * me.t + i % 2;
      inbox[column * 64 + row + 8 * (i / 2 % 2)] = acc[i];
    }
    consumers_sync<S::kConsumerThreads>();
    return {inbox, 0, 1, 0, S::kColumns * 64};
  }
  const uint32_t base = ptx::shared_address(inbox);
#pragma unroll
  for (int i = 0; i < S::kColumns / 2; i += 4) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int column = 2 * i + 2 * me.t + side;
      // The last rank r with r columns / segments <= column.
      const int to = ((column + 1) * segments - 1) / S::kColumns;
      const Segment part = segment_of(S::kColumns, to, segments);
      const int place = ((rank * part.units + column - part.first) * 64 + row) * 4;
      const uint32_t address = ptx::cluster_address(base + place, to);
      ptx::cluster_store(address, acc[i + side]);
      ptx::cluster_store(address + 32, acc[i + 2 + side]);
    }
  }
  // By every lane, since only a few arrive; why stands in docs/kernels/decode.md.
  ptx::cluster_fence();
  __syncwarp();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane < segments) ptx::cluster_barrier_arrive(ptx::cluster_address(ring.inbox(buffer), lane));
  ptx::barrier_wait_cluster(ring.inbox(buffer), turn >> 1 & 1);
  const Segment mine = segment_of(S::kColumns, rank, segments);
  return {inbox, mine.units * 64, segments, mine.first * 64, mine.units * 64};
}

// Four values of the part from `value` on, all segments in order.
__device__ inline float4 folded(const Parts& parts, int value) {
  float4 sum = *reinterpret_cast<const float4*>(parts.from + value);
  for (int s = 1; s < parts.segments; ++s) {
    const float4 more = *reinterpret_cast<const float4*>(parts.from + s * parts.stride + value);
    sum = {__fadd_rn(sum.x, more.x), __fadd_rn(sum.y, more.y), __fadd_rn(sum.z, more.z),
           __fadd_rn(sum.w, more.w)};
  }
  return sum;
}

// The part as rounded outputs: column c of the product is row first_row + c of out [.., n].
struct Outputs {
  uint16_t* out;
  int n;
};
template <int kThreads>
__device__ inline void write_rows(const Parts& parts, const Outputs& to, int tile, int first_row,
                                  int rows) {
  for (int v = 4 * static_cast<int>(threadIdx.x); v < parts.count; v += 4 * kThreads) {
    const int column = (parts.first + v) / 64;
    if (column >= rows) continue;
    const float4 sum = folded(parts, v);
    const size_t at = static_cast<size_t>(first_row + column) * to.n + tile * kPackedRows + v % 64;
    *reinterpret_cast<uint2*>(to.out + at) = {fast::narrow2(sum.x, sum.y),
                                              fast::narrow2(sum.z, sum.w)};
  }
}

// SwiGLU and A8 of a paired tile: each column gives 32 hidden values, one A8 block.
struct Hidden {
  uint8_t* codes;   // [.., width]
  uint8_t* scales;  // [.., width / 32]
  int width;
  float limit;
  const float* weights;  // route weights of the rows; null: 1
};
template <int kThreads>
__device__ inline void write_hidden(const Parts& parts, const Hidden& out, int tile, int first_row,
                                    int rows) {
  const int i = static_cast<int>(threadIdx.x) % 8;
  const int columns = parts.count / 64;
  for (int base = 0; base < columns; base += kThreads / 8) {
    const int column = base + static_cast<int>(threadIdx.x) / 8;
    const int row = parts.first / 64 + column;
    const bool exists = column < columns && row < rows;
    const int gate_at = (exists ? column : 0) * 64 + 16 * (i / 2) + 4 * (i % 2);
    const float4 gate = folded(parts, gate_at);
    const float4 up = folded(parts, gate_at + 8);
    const float weight = out.weights != nullptr && exists ? out.weights[first_row + row] : 1.F;
    auto value = [&](float g, float u) {
      return fast::swiglu(fast::rounded_bf16(g), fast::rounded_bf16(u), out.limit, weight);
    };
    const float4 h = {value(gate.x, up.x), value(gate.y, up.y), value(gate.z, up.z),
                      value(gate.w, up.w)};
    float amax = fmaxf(fmaxf(fabsf(h.x), fabsf(h.y)), fmaxf(fabsf(h.z), fabsf(h.w)));
    for (int step = 1; step < 8; step *= 2) {
      amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFU, amax, step));
    }
    if (!exists) continue;
    const uint32_t scale = fast::a8_scale(amax);
    const float inverse = fast::power(254U - scale);
    const size_t at = static_cast<size_t>(first_row + row) * out.width + tile * 32;
    *reinterpret_cast<uint32_t*>(out.codes + at + 4 * i) =
        fast::e4m3x4(h.x * inverse, h.y * inverse, h.z * inverse, h.w * inverse);
    if (i == 0) out.scales[at / 32] = static_cast<uint8_t>(scale);
  }
}

// --- launching -----------------------------------------------------------------------------------

struct Launch {
  int segments;
  int clusters;  // at most so many
  int blocks;    // of a processor, of this kernel
  int threads;
  int bytes;
};
// Starts `kernel` with the programmatic edge and clusters of one block a segment, no more than run
// at once.
template <typename Args>
cudaError_t launch_clusters(void (*kernel)(Args), const Launch& shape, const Args& args,
                            cudaStream_t stream) {
  const int segments = shape.segments;
  const int bytes = shape.bytes;
  cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned>(segments), 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(segments);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 1;
  int fit = 0;
  status = cudaOccupancyMaxActiveClusters(&fit, kernel, &config);
  if (status != cudaSuccess) return status;
  if (fit < 1) return cudaErrorInvalidConfiguration;
  int device = 0;
  int processors = 0;
  status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  }
  if (status != cudaSuccess) return status;
  const int clusters = std::min({fit, shape.clusters, processors * shape.blocks / segments});
  config.gridDim = dim3(segments * std::max(clusters, 1));
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernel, args);
}

}  // namespace fathom::cuda::decode
