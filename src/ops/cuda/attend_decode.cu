#include "ops/cuda/attend_decode.h"

#include <cuda_fp16.h>

#include "ops/cuda/numbers.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/wgmma.cuh"

namespace fathom::cuda {
namespace {

constexpr int kCluster = 8;
constexpr int kHeads = 64;
constexpr int kWidth = 512;
constexpr int kWindow = 128;
constexpr int kMostSlots = 640;

// A list of kSlots slots, by blocks of kThreads threads.
template <int kSlots_, int kThreads_>
struct Tiles {
  static constexpr int kSlots = kSlots_;
  static constexpr int kThreads = kThreads_;
  static constexpr int kBlocks = kSlots / 64;
  static constexpr int kMine = kSlots / kCluster;  // slots a thread block scores
  static constexpr int kGroups = kSlots / 8;       // of eight slots
  static constexpr int kMyGroups = kMine / 8;
  static constexpr int kColumns = kMine / (kThreads / 128);  // slots that one warpgroup scores
};
using Whole = Tiles<kMostSlots, 640>;
using WindowOnly = Tiles<kWindow, 128>;
// Rows are decoded to 2^-14 of their values, which a product in half precision holds exactly;
// scores and outputs make up for it, without rounding.
constexpr float kLift = 0x1p14F;
constexpr float kScale = 0.04419417382415922F * kLift;
constexpr float kLowest = -1e30F;

// Shared memory. `query` is q until the scores are done, then the probabilities of all slots;
// `vectors` is the scored slots' rows, then the value columns of all slots.
template <class T>
struct Shared {
  static constexpr int kQueryBytes = kHeads * kWidth * 2;
  static constexpr int kProbabilityBytes = T::kSlots * kHeads * 2;
  alignas(1024) uint8_t query[kQueryBytes > kProbabilityBytes ? kQueryBytes : kProbabilityBytes];
  alignas(1024) uint8_t vectors[T::kSlots * kHeads * 2];
  float all_max[T::kGroups][kHeads];
  float all_sum[T::kGroups][kHeads];
  float maximum[T::kBlocks][kHeads];  // running, after the block
  float factor[T::kBlocks][kHeads];   // exp(maximum before - after)
  float block_sum[T::kBlocks][kHeads];
  float total[kHeads];
  uint32_t refs[T::kSlots];
  alignas(8) uint64_t barriers[2];
};

// A list slot: what it is in the two high bits, a row index below.
enum Kind : uint32_t { kHole = 0, kRing = 1, kStep = 2, kEntry = 3 };

// Where a query row's window and entries are.
struct AttendRow {
  int sequence = 0;
  int position = 0;
  int low = 0;             // lowest position that the window may show
  int first_position = 0;  // positions from here on are rows of this step, not of the ring
  int first_row = 0;       // step row of first_position
};
__device__ AttendRow row_of(const RowTable& rows, int query) {
  const auto sequence = static_cast<int>(rows.sequence[query]);
  const SequenceEntry& entry = rows.sequences[sequence];
  return {sequence, static_cast<int>(rows.position[query]), static_cast<int>(entry.window_low),
          static_cast<int>(entry.first_position), static_cast<int>(entry.first_row)};
}

__device__ uint32_t slot_ref(const AttendDecode& a, const AttendRow& row, int query, int slot) {
  if (slot < kWindow) {
    const int low = max(max(row.low, row.position - kWindow + 1), 0);
    const int position = low + slot;
    if (position > row.position) return kHole;
    if (position >= row.first_position) {
      return kStep << 30 | static_cast<uint32_t>(row.first_row + position - row.first_position);
    }
    return kRing << 30 | (a.ring_ids[row.sequence] * kWindow + position % kWindow);
  }
  const int i = slot - kWindow;
  if (i >= a.k) return kHole;
  const int id = a.topk[static_cast<size_t>(query) * a.topk_stride + i];
  if (id < 0) return kHole;
  const uint32_t block =
      a.block_ids[static_cast<size_t>(row.sequence) * a.block_stride + id / a.block_rows];
  return kEntry << 30 | (block * a.block_rows + id % a.block_rows);
}

// 32 channels of a row as they lie in the cache.
struct Piece {
  uint4 low;
  uint4 high;  // FP8 only
  uint32_t scale;
  uint32_t kind;
};
__device__ Piece load_piece(const AttendDecode& a, uint32_t ref, int piece) {
  Piece out{uint4{}, uint4{}, 0, ref >> 30};
  const uint32_t index = ref & 0x3FFFFFFFU;
  if (out.kind == kHole) return out;
  if (out.kind == kEntry) {
    const uint8_t* block = a.pool + static_cast<int64_t>(index / a.block_rows) * a.block_bytes;
    const auto row = static_cast<int64_t>(index % a.block_rows);
    out.low = *reinterpret_cast<const uint4*>(block + a.block_codes_at + row * 256 + piece * 16);
    out.scale =
        *reinterpret_cast<const uint16_t*>(block + a.block_scales_at + row * 32 + piece * 2);
    return out;
  }
  const uint8_t* codes = a.step_codes + static_cast<int64_t>(index) * kWidth;
  const uint8_t* scales = a.step_scales + static_cast<int64_t>(index) * 16;
  if (out.kind == kRing) {
    const uint8_t* ring = a.ring + static_cast<int64_t>(index / kWindow) * a.ring_bytes;
    codes = ring + a.ring_codes_at + static_cast<int64_t>(index % kWindow) * kWidth;
    scales = ring + a.ring_scales_at + static_cast<int64_t>(index % kWindow) * 16;
  }
  out.low = *reinterpret_cast<const uint4*>(codes + piece * 32);
  out.high = *reinterpret_cast<const uint4*>(codes + piece * 32 + 16);
  out.scale = scales[piece];
  return out;
}

// The upper halves of two floats that are bf16 values.
__device__ inline uint32_t packed(float low, float high) {
  return ptx::permute(__float_as_uint(low), __float_as_uint(high), 0x7632);
}
__device__ inline uint2 from_e4m3x4(uint32_t codes, float scale) {
  const float2 a = fast::from_e4m3x2(codes & 0xFFFFU);
  const float2 b = fast::from_e4m3x2(codes >> 16);
  return {packed(a.x * scale, a.y * scale), packed(b.x * scale, b.y * scale)};
}
// Two halves, 2^-14 of an E2M1 value each, times an E4M3 scale.
__device__ inline uint32_t scaled(uint32_t halves, __half2 scale) {
  const float2 v = __half22float2(__hmul2(*reinterpret_cast<const __half2*>(&halves), scale));
  return packed(v.x, v.y);
}
// Eight E2M1 codes: sign and magnitude become the upper byte of a half, four at a time.
__device__ inline uint4 from_e2m1x8(uint32_t codes, __half2 scale) {
  const uint32_t even = (codes & 0x08080808U) << 4 | (codes & 0x07070707U) << 1;
  const uint32_t odd = (codes & 0x80808080U) | (codes >> 3 & 0x0E0E0E0EU);
  constexpr uint32_t kUpper = 0xFF00FF00U;
  return {scaled(ptx::permute(even, odd, 0x4400) & kUpper, scale),
          scaled(ptx::permute(even, odd, 0x5511) & kUpper, scale),
          scaled(ptx::permute(even, odd, 0x6622) & kUpper, scale),
          scaled(ptx::permute(even, odd, 0x7733) & kUpper, scale)};
}

// Writes the 32 channels as bf16 into chunks first .. first + 3 of a swizzled row of 128 bytes.
// Not inlined: a block runs through its code once, so that the code's size is time.
__device__ __noinline__ void store_piece(Piece piece, uint8_t* row, int swizzle, int first) {
  uint4 out[4] = {};
  if (piece.kind == kEntry) {
    const uint32_t words[4] = {piece.low.x, piece.low.y, piece.low.z, piece.low.w};
    const float2 scales = fast::from_e4m3x2(piece.scale);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[i] = from_e2m1x8(words[i], __float2half2_rn(i < 2 ? scales.x : scales.y));
    }
  } else if (piece.kind != kHole) {
    const float scale = fast::power(piece.scale) * (1.F / kLift);
    const uint4 halves[2] = {piece.low, piece.high};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint2 a = from_e4m3x4(halves[i].x, scale);
      const uint2 b = from_e4m3x4(halves[i].y, scale);
      const uint2 c = from_e4m3x4(halves[i].z, scale);
      const uint2 d = from_e4m3x4(halves[i].w, scale);
      out[2 * i] = {a.x, a.y, b.x, b.y};
      out[2 * i + 1] = {c.x, c.y, d.x, d.y};
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    *reinterpret_cast<uint4*>(row + 16 * ((first + i) ^ swizzle)) = out[i];
  }
}

// The scored slots' rows as the B operand: [64 channels][80 slots][128 bytes].
template <class T>
__device__ void stage_keys(const AttendDecode& a, const uint32_t* refs, uint8_t* to) {
  constexpr int kEach = T::kMine * 16 / T::kThreads;
  Piece pieces[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int item = static_cast<int>(threadIdx.x) + i * T::kThreads;
    pieces[i] = load_piece(a, refs[item / 16], item % 16);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int item = static_cast<int>(threadIdx.x) + i * T::kThreads;
    const int slot = item / 16;
    const int piece = item % 16;
    store_piece(pieces[i], to + ((piece / 2) * T::kMine + slot) * 128, slot & 7, piece % 2 * 4);
  }
}

// This block's 64 value columns of all slots, slots as rows of 128 bytes.
template <class T>
struct Values {
  static constexpr int kEach = T::kSlots * 2 / T::kThreads;
  Piece pieces[kEach];
};
template <class T>
__device__ void load_values(const AttendDecode& a, const uint32_t* refs, int rank,
                            Values<T>* values) {
#pragma unroll
  for (int i = 0; i < Values<T>::kEach; ++i) {
    const int item = static_cast<int>(threadIdx.x) + i * T::kThreads;
    values->pieces[i] = load_piece(a, refs[item / 2], 2 * rank + item % 2);
  }
}
template <class T>
__device__ void stage_values(const Values<T>& values, uint8_t* to) {
#pragma unroll
  for (int i = 0; i < Values<T>::kEach; ++i) {
    const int item = static_cast<int>(threadIdx.x) + i * T::kThreads;
    const int slot = item / 2;
    store_piece(values.pieces[i], to + slot * 128, slot & 7, item % 2 * 4);
  }
}

// bf16 of the pair (u, v) turned by (cos, sin); spec/backbone.md 2.5.
__device__ inline uint32_t turned(uint32_t pair, float cos, float sin) {
  const float u = fast::widen(pair & 0xFFFFU);
  const float v = fast::widen(pair >> 16);
  return fast::narrow2(__fsub_rn(__fmul_rn(u, cos), __fmul_rn(v, sin)),
                       __fadd_rn(__fmul_rn(u, sin), __fmul_rn(v, cos)));
}

__device__ inline uint8_t* query_place(uint8_t* to, int head, int chunk) {
  return to + ((chunk / 8) * kHeads + head) * 128 + 16 * ((chunk % 8) ^ (head & 7));
}
// q as the A operand: [64 channels][64 heads][128 bytes]. What needs no rotation is only copied.
template <class T>
__device__ void copy_query(const AttendDecode& a, int query, uint8_t* to) {
  const uint16_t* q = a.q + static_cast<size_t>(query) * kHeads * kWidth;
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * 56; i += T::kThreads) {
    const int head = i / 56;
    const int chunk = i % 56;
    ptx::copy16(ptx::shared_address(query_place(to, head, chunk)), q + head * kWidth + chunk * 8,
                true);
  }
  ptx::copy_commit();
}
template <class T>
__device__ void rotate_query(const AttendDecode& a, int query, uint8_t* to) {
  const uint16_t* q = a.q + static_cast<size_t>(query) * kHeads * kWidth;
  for (int item = static_cast<int>(threadIdx.x); item < kHeads * 8; item += T::kThreads) {
    const int head = item / 8;
    const int chunk = item % 8;
    const uint4 v = *reinterpret_cast<const uint4*>(q + head * kWidth + 448 + chunk * 8);
    const float4 c = *reinterpret_cast<const float4*>(a.cos + query * 32 + chunk * 4);
    const float4 s = *reinterpret_cast<const float4*>(a.sin + query * 32 + chunk * 4);
    *reinterpret_cast<uint4*>(query_place(to, head, 56 + chunk)) = {
        turned(v.x, c.x, s.x), turned(v.y, c.y, s.y), turned(v.z, c.z, s.z), turned(v.w, c.w, s.w)};
  }
}

template <class T>
__device__ void score(const Shared<T>& s, int group, float (&d)[T::kColumns / 2]) {
  const uint32_t q = ptx::shared_address(s.query);
  const uint32_t keys = ptx::shared_address(s.vectors) + group * T::kColumns * 128;
  wgmma::fence();
#pragma unroll 1
  for (int c = 0; c < kWidth / 64; ++c) {
    const uint64_t a = wgmma::descriptor(q + c * kHeads * 128);
    const uint64_t b = wgmma::descriptor(keys + c * T::kMine * 128);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      wgmma::bf16<T::kColumns>(d, a + 2 * step, b + 2 * step, c + step > 0);
    }
  }
  wgmma::commit();
}

__device__ inline float over_quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFU, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xFFFFFFFFU, v, 2));
}
__device__ inline float over_quad_sum(float v) {
  v = __fadd_rn(v, __shfl_xor_sync(0xFFFFFFFFU, v, 1));
  return __fadd_rn(v, __shfl_xor_sync(0xFFFFFFFFU, v, 2));
}

// This thread's place in the score tile: heads head and head + 8, slots 8 group + 2 t and + 1.
struct Place {
  int group = static_cast<int>(threadIdx.x) / 128;
  int head = 16 * (static_cast<int>(threadIdx.x) / 32 % 4) + static_cast<int>(threadIdx.x) % 32 / 4;
  int t = static_cast<int>(threadIdx.x) % 4;
};

// Scales, empties holes, writes the maximum of each group of eight slots.
template <class T>
__device__ void finish_scores(Shared<T>& s, const uint32_t* refs, int rank,
                              float (&d)[T::kColumns / 2]) {
  const Place me;
#pragma unroll
  for (int j = 0; j < T::kColumns / 8; ++j) {
    const int group = me.group * (T::kColumns / 8) + j;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool hole = refs[group * 8 + 2 * me.t + i % 2] == kHole;
      d[4 * j + i] = hole ? -INFINITY : __fmul_rn(d[4 * j + i], kScale);
    }
    const float upper = over_quad_max(fmaxf(d[4 * j], d[4 * j + 1]));
    const float lower = over_quad_max(fmaxf(d[4 * j + 2], d[4 * j + 3]));
    if (me.t == 0) {
      s.all_max[rank * T::kMyGroups + group][me.head] = upper;
      s.all_max[rank * T::kMyGroups + group][me.head + 8] = lower;
    }
  }
}

// Probabilities of this block's slots against the running maximum of their block of 64.
template <class T>
__device__ void exponentiate(Shared<T>& s, int rank, const float (&d)[T::kColumns / 2]) {
  const Place me;
#pragma unroll
  for (int j = 0; j < T::kColumns / 8; ++j) {
    const int group = rank * T::kMyGroups + me.group * (T::kColumns / 8) + j;
    const float* maximum = s.maximum[group / 8];
    const float m0 = maximum[me.head];
    const float m1 = maximum[me.head + 8];
    const float p0 = fast::exp_f32(__fsub_rn(d[4 * j], m0));
    const float p1 = fast::exp_f32(__fsub_rn(d[4 * j + 1], m0));
    const float p2 = fast::exp_f32(__fsub_rn(d[4 * j + 2], m1));
    const float p3 = fast::exp_f32(__fsub_rn(d[4 * j + 3], m1));
    uint8_t* out = s.query + group * 1024 + (me.head / 8) * 128 + (me.head % 8) * 16 + me.t * 4;
    *reinterpret_cast<uint32_t*>(out) = fast::narrow2(p0, p1);
    *reinterpret_cast<uint32_t*>(out + 128) = fast::narrow2(p2, p3);
    const float upper = over_quad_sum(__fadd_rn(p0, p1));
    const float lower = over_quad_sum(__fadd_rn(p2, p3));
    if (me.t == 0) {
      s.all_sum[group][me.head] = upper;
      s.all_sum[group][me.head + 8] = lower;
    }
  }
}

// Sends this block's part of `all`, `bytes` at its rank, to the same place of the other blocks.
__device__ void send_part(const void* all, int bytes, int rank, uint64_t* barrier) {
  const auto to = static_cast<int>(threadIdx.x);
  if (to >= kCluster || to == rank) return;
  const uint32_t from = ptx::shared_address(all) + rank * bytes;
  ptx::bulk_send(ptx::cluster_address(from, to), from, bytes,
                 ptx::cluster_address(ptx::shared_address(barrier), to));
}

// The running maximum after each block of 64 and the factors between them.
template <class T>
__device__ void running_maximum(Shared<T>& s) {
  for (int i = static_cast<int>(threadIdx.x); i < T::kBlocks * kHeads; i += T::kThreads) {
    const int block = i / kHeads;
    const int head = i % kHeads;
    float top = s.all_max[8 * block][head];
    for (int g = 1; g < 8; ++g) top = fmaxf(top, s.all_max[8 * block + g][head]);
    s.maximum[block][head] = top;
  }
  __syncthreads();
  if (threadIdx.x < kHeads) {
    float before = kLowest;
    for (auto& maximum : s.maximum) {
      before = fmaxf(before, maximum[threadIdx.x]);
      maximum[threadIdx.x] = before;
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < T::kBlocks * kHeads; i += T::kThreads) {
    const int block = i / kHeads;
    const int head = i % kHeads;
    const float before = block == 0 ? kLowest : s.maximum[block - 1][head];
    s.factor[block][head] = fast::exp_f32(__fsub_rn(before, s.maximum[block][head]));
  }
}

template <class T>
__device__ void denominators(Shared<T>& s, const float* sink) {
  for (int i = static_cast<int>(threadIdx.x); i < T::kBlocks * kHeads; i += T::kThreads) {
    const int block = i / kHeads;
    const int head = i % kHeads;
    float part = s.all_sum[8 * block][head];
    for (int g = 1; g < 8; ++g) part = __fadd_rn(part, s.all_sum[8 * block + g][head]);
    s.block_sum[block][head] = part;
  }
  __syncthreads();
  const auto head = static_cast<int>(threadIdx.x);
  if (head >= kHeads) return;
  float sum = 0;
#pragma unroll
  for (int block = 0; block < T::kBlocks; ++block) {
    sum = __fadd_rn(__fmul_rn(sum, s.factor[block][head]), s.block_sum[block][head]);
  }
  const float last = s.maximum[T::kBlocks - 1][head];
  const float total = __fadd_rn(sum, fast::exp_f32(__fsub_rn(sink[head], last)));
  s.total[head] = total * (1.F / kLift);
}

// Blocks that hold no slot are left out: bit b of the result is set for block b.
template <class T>
__device__ uint32_t filled_blocks(const uint32_t* refs) {
  uint32_t mask = 0;
  for (int b = 0; b < T::kBlocks; ++b) {
    const bool any =
        refs[64 * b + threadIdx.x % 32] != kHole || refs[64 * b + 32 + threadIdx.x % 32] != kHole;
    if (__any_sync(0xFFFFFFFFU, any)) mask |= 1U << b;
  }
  return mask;
}

// The first warpgroup: 64 heads by 64 columns over the blocks in order.
template <class T>
__device__ void accumulate(const Shared<T>& s, uint32_t filled, float (&acc)[32]) {
  const Place me;
  for (float& v : acc) v = 0;
  const uint32_t p = ptx::shared_address(s.query);
  const uint32_t values = ptx::shared_address(s.vectors);
#pragma unroll 1
  for (int block = 0; block < T::kBlocks; ++block) {
    if ((filled >> block & 1U) == 0) continue;
    const float upper = s.factor[block][me.head];
    const float lower = s.factor[block][me.head + 8];
#pragma unroll
    for (int i = 0; i < 32; ++i) acc[i] = __fmul_rn(acc[i], i / 2 % 2 == 0 ? upper : lower);
    wgmma::fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const int pair = 4 * block + step;  // sixteen slots
      wgmma::bf16_mn<64>(acc, wgmma::descriptor_plain(p + pair * 2048, 1024),
                         wgmma::descriptor_mn(values + pair * 2048, 1024), true);
    }
    wgmma::commit();
    wgmma::wait<0>();
  }
}

template <class T>
__device__ void write_out(const AttendDecode& a, const Shared<T>& s, int query, int rank,
                          const float (&acc)[32]) {
  const Place me;
  uint16_t* out = a.out + static_cast<size_t>(query) * kHeads * kWidth + 64 * rank;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = me.head + 8 * half;
      const float total = s.total[head];
      uint32_t pair = fast::narrow2(__fdiv_rn(acc[4 * j + 2 * half], total),
                                    __fdiv_rn(acc[4 * j + 2 * half + 1], total));
      const int at = 8 * j + 2 * me.t;
      if (rank == kCluster - 1) {
        pair = turned(pair, a.cos[query * 32 + at / 2], -a.sin[query * 32 + at / 2]);
      }
      *reinterpret_cast<uint32_t*>(out + head * kWidth + at) = pair;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(T::kThreads, 1)
    attend_decode_kernel(const __grid_constant__ AttendDecode a) {
  extern __shared__ __align__(1024) uint8_t raw[];
  Shared<T>& s = *reinterpret_cast<Shared<T>*>(raw);
  const auto rank = static_cast<int>(blockIdx.x);
  const auto query = static_cast<int>(blockIdx.y);
  ptx::launch_dependents();
  if (threadIdx.x == 0) {
    ptx::barrier_init(ptx::shared_address(&s.barriers[0]), 1);
    ptx::barrier_init(ptx::shared_address(&s.barriers[1]), 1);
    ptx::barrier_init_fence();
    constexpr int kOthers = kCluster - 1;
    ptx::barrier_expect(ptx::shared_address(&s.barriers[0]),
                        sizeof(s.all_max) / kCluster * kOthers);
    ptx::barrier_expect(ptx::shared_address(&s.barriers[1]),
                        (sizeof(s.all_sum) + Shared<T>::kProbabilityBytes) / kCluster * kOthers);
  }
  ptx::wait_for_inputs();
  copy_query<T>(a, query, s.query);
  const AttendRow row = row_of(a.rows, query);
  for (int slot = static_cast<int>(threadIdx.x); slot < T::kSlots; slot += T::kThreads) {
    s.refs[slot] = slot_ref(a, row, query, slot);
  }
  rotate_query<T>(a, query, s.query);
  __syncthreads();
  ptx::cluster_arrive();
  const uint32_t* mine = s.refs + rank * T::kMine;
  stage_keys<T>(a, mine, s.vectors);
  ptx::copy_wait<0>();
  ptx::proxy_fence();
  __syncthreads();
  float d[T::kColumns / 2];
  score(s, static_cast<int>(threadIdx.x) / 128, d);
  Values<T> values;
  load_values<T>(a, s.refs, rank, &values);
  wgmma::wait<0>();
  finish_scores(s, mine, rank, d);
  ptx::proxy_fence();
  ptx::cluster_wait();
  __syncthreads();
  send_part(s.all_max, sizeof(s.all_max) / kCluster, rank, &s.barriers[0]);
  stage_values(values, s.vectors);
  ptx::barrier_wait_cluster(ptx::shared_address(&s.barriers[0]), 0);
  running_maximum(s);
  exponentiate(s, rank, d);
  ptx::proxy_fence();
  __syncthreads();
  send_part(s.all_sum, sizeof(s.all_sum) / kCluster, rank, &s.barriers[1]);
  send_part(s.query, Shared<T>::kProbabilityBytes / kCluster, rank, &s.barriers[1]);
  ptx::barrier_wait_cluster(ptx::shared_address(&s.barriers[1]), 0);
  // When all blocks are here, all copies out of their memories are complete.
  ptx::cluster_arrive();
  denominators(s, a.sink);
  __syncthreads();
  if (threadIdx.x < 128) {
    float acc[32];
    accumulate(s, filled_blocks<T>(s.refs), acc);
    write_out(a, s, query, rank, acc);
  }
  ptx::cluster_wait();
}

template <class T>
cudaError_t launch(const AttendDecode& args, cudaStream_t stream) {
  const cudaError_t status = cudaFuncSetAttribute(
      attend_decode_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared<T>));
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kCluster, args.n_rows);
  config.blockDim = T::kThreads;
  config.dynamicSmemBytes = sizeof(Shared<T>);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, attend_decode_kernel<T>, args);
}

}  // namespace

cudaError_t attend_decode(const AttendDecode& args, cudaStream_t stream) {
  if (args.n_rows < 1 || args.k < 0 || args.k > kMostSlots - kWindow) return cudaErrorInvalidValue;
  return args.k == 0 && args.narrow ? launch<WindowOnly>(args, stream)
                                    : launch<Whole>(args, stream);
}

}  // namespace fathom::cuda
