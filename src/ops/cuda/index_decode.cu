#include "ops/cuda/index_decode.h"

#include <algorithm>
#include <bit>

#include "ops/cuda/index_best.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/tables.cuh"
#include "ops/cuda/wgmma.cuh"

namespace fathom::cuda {
namespace {

constexpr int kHeads = 32;
constexpr int kWidth = 128;
constexpr int kBlock = 8;        // entries of a candidate block
constexpr int kTile = 64;        // keys at a time
constexpr int kGroup = 128;      // threads of a warpgroup
constexpr int kScoreBlocks = 4;  // of a processor
constexpr int kProcessors = 132;

// Keys lie 2^-32 below and queries 2^32 above what they are, so that an FP4 code placed in the low
// bits of a BF16's exponent needs one multiplication whose factor is a BF16.
constexpr uint32_t kLowered = 32;
constexpr uint32_t kCodeBias = 126;

// ---- plan ----

// Grid: a row of the piece each.
__global__ void __launch_bounds__(kGroup) plan_kernel(const IndexDecode args) {
  enter();
  const int64_t piece_row = blockIdx.x;
  uint32_t* bins = bins_of(args, piece_row, 0);
  for (int i = threadIdx.x; i < 2 * (kIndexBins + 1); i += kGroup) bins[i] = 0;
  if (threadIdx.x < 32) plan_row(args.a, args.a.first_row + piece_row);
}

// ---- scores ----

struct ScoreRoom {
  uint8_t query[2][kHeads * 128];  // halves of the columns, swizzled (wgmma.cuh)
  uint32_t bins[2][kIndexBins];
  float weight[kHeads];
};

// Column of the product k -> column of a query: the codes of a word are taken as the pairs (n, n +
// 4), and a thread of four has a whole group of 32.
__device__ int query_column(int step, int slot) {
  const int t = slot % 8 / 2;
  const int pair = 2 * (step % 2) + slot / 8;
  return 32 * t + 8 * (step / 2) + pair + 4 * (slot % 2);
}

__device__ void load_query(const IndexKernelArgs& a, int64_t row, ScoreRoom& room) {
  for (int i = threadIdx.x; i < kHeads * kWidth; i += kGroup) {
    const int head = i / kWidth;
    const int step = i % kWidth / 16;
    const int slot = i % 16;
    const uint16_t q = a.q[row * kHeads * kWidth + head * kWidth + query_column(step, slot)];
    const float raised = fast::widen(q) * fast::power(127 + kLowered);
    const int column = step % 4 * 16 + slot;
    const int at = head * 128 + 16 * ((column / 8) ^ (head % 8)) + column % 8 * 2;
    *reinterpret_cast<uint16_t*>(&room.query[step / 4][at]) =
        static_cast<uint16_t>(fast::narrow(raised));
  }
  for (int h = threadIdx.x; h < kHeads; h += kGroup) {
    room.weight[h] =
        fast::rounded_bf16(fast::widen(a.weights[row * a.weight_stride + h]) * a.weight_scale);
  }
}

struct PackedKey {
  uint4 codes;     // a group of 32
  uint32_t scale;  // E8M0
};

__device__ PackedKey load_key(const IndexDecode& args, int64_t sequence, int64_t entry, int t) {
  const BlockTable& table = args.a.keys;
  const int64_t block = entry >> args.room.entry_rows_log2;
  const int64_t inside = entry & ((int64_t{1} << args.room.entry_rows_log2) - 1);
  const uint8_t* record =
      table.base +
      static_cast<int64_t>(table.ids[sequence * table.stride + block]) * table.block_bytes;
  const uint8_t* codes = record + table.stream.payload_offset + inside * (kWidth / 2);
  return {ptx::stream16(codes + 16 * t),
          record[table.stream.scale_offset + inside * (kWidth / 32) + t]};
}

// Codes n and n + 4 of eight as two BF16 times `factor`.
template <int kPair>
__device__ uint32_t decode_pair(uint32_t codes, uint32_t factor) {
  const uint32_t magnitude = kPair < 2 ? codes << (6 - 4 * kPair) : codes >> (4 * kPair - 6);
  const uint32_t sign = codes << (12 - 4 * kPair);
  const uint32_t bits = (magnitude & 0x01C001C0U) | (sign & 0x80008000U);
  uint32_t out = 0;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(bits), "r"(factor));
  return out;
}

__device__ uint32_t factor_of(uint32_t scale) {
  const uint32_t half = min(scale + kCodeBias - kLowered, 254U) << 7;
  return half | half << 16;
}

// Steps 2 kWord and 2 kWord + 1 of 16 columns: this thread's words in the keys of rows g and g + 8.
template <int kWord>
__device__ void decode_steps(uint32_t (&a)[8][4], const uint32_t (&word)[2],
                             const uint32_t (&factor)[2]) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    a[2 * kWord][row] = decode_pair<0>(word[row], factor[row]);
    a[2 * kWord][2 + row] = decode_pair<1>(word[row], factor[row]);
    a[2 * kWord + 1][row] = decode_pair<2>(word[row], factor[row]);
    a[2 * kWord + 1][2 + row] = decode_pair<3>(word[row], factor[row]);
  }
}

__device__ void products(float (&sum)[kHeads / 2], const PackedKey (&key)[2],
                         const uint64_t (&query)[2]) {
  const uint32_t factor[2] = {factor_of(key[0].scale), factor_of(key[1].scale)};
  uint32_t a[8][4];
  decode_steps<0>(a, {key[0].codes.x, key[1].codes.x}, factor);
  decode_steps<1>(a, {key[0].codes.y, key[1].codes.y}, factor);
  decode_steps<2>(a, {key[0].codes.z, key[1].codes.z}, factor);
  decode_steps<3>(a, {key[0].codes.w, key[1].codes.w}, factor);
  wgmma::fence();
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    wgmma::bf16<kHeads>(sum, a[step], query[step / 4] + step % 4 * 2, step != 0);
  }
  wgmma::commit();
  wgmma::wait<0>();
}

// Of row g (`half` 0) or g + 8 of the warp; all lanes get the sum of the four that share the row.
template <IndexScores kMode>
__device__ float score_of(const float (&sum)[kHeads / 2], const float (&weight)[kHeads / 4],
                          int half) {
  float score = 0;
#pragma unroll
  for (int j = 0; j < kHeads / 8; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float dot = sum[4 * j + 2 * half + c];
      const float w = weight[2 * j + c];
      if constexpr (kMode == IndexScores::kF32) {
        score = __fmaf_rn(w, fmaxf(dot, 0.0F), score);
      } else {
        score += fast::rounded_bf16(fmaxf(fast::rounded_bf16(dot), 0.0F) * w);
      }
    }
  }
  score += __shfl_xor_sync(kFullWarp, score, 1);
  score += __shfl_xor_sync(kFullWarp, score, 2);
  return kMode == IndexScores::kF32 ? score : fast::rounded_bf16(score);
}

__device__ void count_key(uint32_t* bins, float score) {
  const uint32_t key = key_of(score);
  if (key != 0) atomicAdd(&bins[bin_of(key)], 1U);
}

struct TopList {
  float* tops;  // of the row
  int64_t n_blocks;
};

// The best of a candidate block, in the warp's rows 0 .. 7 or 8 .. 15.
__device__ void keep_top(const TopList& list, int64_t block, float score, uint32_t* bins) {
#pragma unroll
  for (int lanes = 4; lanes < 32; lanes *= 2) {
    score = fmaxf(score, __shfl_xor_sync(kFullWarp, score, lanes));
  }
  if (threadIdx.x % 32 != 0 || block >= list.n_blocks) return;
  const float top = block == list.n_blocks - 1 ? INFINITY : score;
  list.tops[block] = top;
  count_key(bins, top);
}

// Grid: blocks that share a row's tiles, rows of the piece.
template <IndexScores kMode>
__global__ void __launch_bounds__(kGroup, kScoreBlocks) score_kernel(const IndexDecode args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  enter();
  const IndexKernelArgs& a = args.a;
  const int64_t piece_row = blockIdx.y;
  const int64_t row = a.first_row + piece_row;
  const RowPlan plan = a.plan[row];
  const int64_t n_tiles = (plan.n_places + kTile - 1) / kTile;
  if (plan.settled || blockIdx.x >= n_tiles) return;
  auto& room = *reinterpret_cast<ScoreRoom*>(memory);
  for (int i = threadIdx.x; i < 2 * kIndexBins; i += kGroup)
    room.bins[i / kIndexBins][i % kIndexBins] = 0;
  load_query(a, row, room);
  ptx::proxy_fence();
  __syncthreads();

  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  float weight[kHeads / 4];
#pragma unroll
  for (int i = 0; i < kHeads / 4; ++i) weight[i] = room.weight[i / 2 * 8 + 2 * t + i % 2];
  const uint64_t query[2] = {wgmma::descriptor(ptx::shared_address(room.query[0])),
                             wgmma::descriptor(ptx::shared_address(room.query[1]))};
  const int64_t sequence = a.rows.sequence[row];
  const int64_t in_tile = threadIdx.x / 32 * 16 + g;

  // A place behind the last reads the first entry; what it scores is not kept.
  PackedKey next[2];
  int64_t entry[2];
  const auto load = [&](int64_t tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t place = tile * kTile + in_tile + 8 * half;
      entry[half] = place < plan.n_places ? entry_at(a, row, place) : plan.visible;
      next[half] = load_key(args, sequence, entry[half] < plan.visible ? entry[half] : 0, t);
    }
  };
  const TopList tops = {a.tops + piece_row * a.block_stride, plan.n_blocks};
  load(blockIdx.x);
  for (int64_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
    const PackedKey key[2] = {next[0], next[1]};
    const bool scored[2] = {entry[0] < plan.visible, entry[1] < plan.visible};
    if (tile + gridDim.x < n_tiles) load(tile + gridDim.x);
    float sum[kHeads / 2];
    products(sum, key, query);
    float score[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      score[half] = score_of<kMode>(sum, weight, half);
      if (!scored[half]) score[half] = -INFINITY;
    }
    const int64_t place = tile * kTile + in_tile + (t == 1 ? 8 : 0);
    if (t < 2 && place < plan.n_places) {
      const float mine = t == 0 ? score[0] : score[1];
      a.scores[piece_row * a.stride + place] = mine;
      count_key(room.bins[0], mine);
    }
    if (a.pool_out == nullptr) continue;
    const int64_t block = (tile * kTile + in_tile - g) / kBlock;
    keep_top(tops, block, score[0], room.bins[1]);
    keep_top(tops, block + 1, score[1], room.bins[1]);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * kIndexBins; i += kGroup) {
    const int list = i / kIndexBins;
    const uint32_t n = room.bins[list][i % kIndexBins];
    if (n != 0) atomicAdd(bins_of(args, piece_row, list) + i % kIndexBins, n);
  }
}

template <IndexScores kMode>
cudaError_t launch_score(const IndexDecode& args, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(args.a.n_piece);
  const auto tiles = static_cast<unsigned>((args.a.stride + kTile - 1) / kTile);
  const unsigned share = std::max(1U, kProcessors * kScoreBlocks / rows);
  const size_t bytes = sizeof(ScoreRoom);
  cudaFuncSetAttribute(score_kernel<kMode>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(bytes));
  return launch_dependent(score_kernel<kMode>, {dim3(std::min(tiles, share), rows), kGroup, bytes},
                          args, stream);
}

}  // namespace

bool index_decode_fits(const IndexKernelArgs& args) {
  const KvStream& keys = args.keys.stream;
  return args.n_heads == kHeads && args.width == kWidth && args.block_size == kBlock &&
         args.settle && args.K < kIndexKept && args.P < kIndexKept &&
         keys.payload_bytes == kWidth / 2 && keys.scale_bytes == kWidth / 32 &&
         std::has_single_bit(static_cast<uint64_t>(keys.rows)) && keys.payload_offset % 16 == 0 &&
         args.keys.block_bytes % 16 == 0;
}

cudaError_t index_decode(const IndexDecode& args, cudaStream_t stream) {
  const IndexKernelArgs& a = args.a;
  const auto rows = static_cast<unsigned>(a.n_piece);
  cudaError_t status = launch_dependent(plan_kernel, {rows, kGroup}, args, stream);
  if (status == cudaSuccess && a.stride > 0) {
    status = a.mode == IndexScores::kF32 ? launch_score<IndexScores::kF32>(args, stream)
                                         : launch_score<IndexScores::kBf16>(args, stream);
  }
  return status == cudaSuccess ? launch_index_best(args, stream) : status;
}

}  // namespace fathom::cuda
