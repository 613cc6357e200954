#pragma once

// A row's plan, and the best of its scores by one block, eight bits of the key at a time
// (index_select.h).

#include "ops/cuda/index_select.h"
#include "ops/cuda/math.cuh"

namespace fathom::cuda {

constexpr int kChooseThreads = 1024;
constexpr int kWarps = kChooseThreads / 32;
constexpr int kDigits = 256;

// By a warp.
__device__ inline void plan_row(const IndexKernelArgs& a, int64_t row) {
  RowPlan plan;
  plan.visible = (a.rows.position[row] + 1) / a.keys.stream.ratio;
  plan.n_blocks = (plan.visible + a.block_size - 1) / a.block_size;
  plan.n_places = plan.visible;
  int64_t n_listed = plan.n_blocks;
  if (a.pool_in != nullptr) {
    int mine = 0;
    for (int64_t i = threadIdx.x; i < a.P; i += 32) {
      mine += a.pool_in[row * a.pool_stride + i] != -1 ? 1 : 0;
    }
    n_listed = __reduce_add_sync(kFullWarp, mine);
    plan.n_places = n_listed * a.block_size;
  }
  plan.settled = a.settle && plan.visible <= a.K &&
                 (a.pool_out == nullptr || plan.n_blocks <= a.P) && n_listed >= plan.n_blocks;
  if (threadIdx.x == 0) a.plan[row] = plan;
}

// The entry at a place; at or beyond `visible` where there is none.
__device__ inline int64_t entry_at(const IndexKernelArgs& a, int64_t row, int64_t place) {
  if (a.pool_in == nullptr) return place;
  const int64_t block = a.pool_in[row * a.pool_stride + place / a.block_size];
  return block * a.block_size + place % a.block_size;
}

// Larger scores have larger keys; 0 is never kept: -inf, NaN. The two zeros are one score.
__device__ inline uint32_t key_of(float score) {
  if (!(score > -INFINITY)) return 0;
  const uint32_t bits = __float_as_uint(score == 0.0f ? 0.0f : score);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// What a list of scores keeps: keys above `key`, and of those equal to it the first `n_equal`.
struct Threshold {
  uint32_t key;
  int n_equal;
};

struct ChooseRoom {
  int digits[kDigits];
  int above[kWarps];
  int equal[kWarps];
  uint32_t prefix;
  int wanted;
};

// The digit in which the wanted key is, counted from the largest, and what is wanted of it; by a
// warp, a lane of which has eight digits.
__device__ inline void find_digit(ChooseRoom& room) {
  constexpr int kEach = kDigits / 32;
  const int lane = static_cast<int>(threadIdx.x);
  const int top = kDigits - 1 - kEach * lane;  // lane 0 has the largest digits
  int counts[kEach];
  int mine = 0;
  for (int i = 0; i < kEach; ++i) mine += counts[i] = room.digits[top - i];
  int before = mine;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kFullWarp, before, step);
    if (lane >= step) before += other;
  }
  before -= mine;
  const int wanted = room.wanted;
  // The first lane that reaches what is wanted; the last one where none does.
  const unsigned reach = __ballot_sync(kFullWarp, before + mine >= wanted);
  const int chosen = reach != 0 ? __ffs(static_cast<int>(reach)) - 1 : 31;
  __syncwarp();
  if (lane != chosen) return;
  int left = wanted - before;
  int digit = top;
  for (int i = 0; i < kEach - 1 && counts[i] < left; ++i) {
    left -= counts[i];
    --digit;
  }
  room.prefix = room.prefix << 8 | static_cast<uint32_t>(digit);
  room.wanted = left;
}

// The k-th largest key, eight bits at a time, and how many of its equals are kept. Where fewer than
// k keys are above 0, the threshold is 0 with none of its equals.
__device__ inline Threshold find_threshold(const float* scores, int64_t n, int64_t k,
                                           ChooseRoom& room) {
  if (threadIdx.x == 0) {
    room.prefix = 0;
    room.wanted = static_cast<int>(min(k, int64_t{0x7fffffff}));
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int d = threadIdx.x; d < kDigits; d += kChooseThreads) room.digits[d] = 0;
    __syncthreads();
    const uint32_t prefix = room.prefix;
    for (int64_t i = threadIdx.x; i < n; i += kChooseThreads) {
      const uint32_t key = key_of(scores[i]);
      if (shift < 24 && key >> (shift + 8) != prefix) continue;
      atomicAdd(&room.digits[key >> shift & 255u], 1);
    }
    __syncthreads();
    if (threadIdx.x < 32) find_digit(room);
    __syncthreads();
  }
  const Threshold found = {room.prefix, room.prefix == 0 ? 0 : room.wanted};
  __syncthreads();
  return found;
}

struct ScoreList {
  const float* scores;
  int64_t n;
};
struct IdList {
  int32_t* ids;
  int64_t k;
};

// Writes the places that are kept in ascending order, then -1. A warp walks a run of places.
template <class IdOf>
__device__ void write_kept(const ScoreList& list, const Threshold& t, ChooseRoom& room,
                           const IdList& out, const IdOf& id_of) {
  const float* scores = list.scores;
  const int64_t n = list.n;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int64_t run = (n + kWarps * 32 - 1) / (kWarps * 32) * 32;
  const int64_t begin = warp * run;
  const int64_t end = min(begin + run, n);
  int n_above = 0;
  int n_equal = 0;
  for (int64_t i = begin; i < end; i += 32) {
    const uint32_t key = i + lane < end ? key_of(scores[i + lane]) : 0;
    n_above += __popc(__ballot_sync(kFullWarp, key > t.key));
    n_equal += __popc(__ballot_sync(kFullWarp, key == t.key));
  }
  if (lane == 0) {
    room.above[warp] = n_above;
    room.equal[warp] = n_equal;
  }
  __syncthreads();
  int kept = 0;
  int equals = 0;
  for (int other = 0; other < warp; ++other) {
    kept += room.above[other];
    equals += room.equal[other];
  }
  kept += min(equals, t.n_equal);
  int total = 0;
  int all_equal = 0;
  for (int other = 0; other < kWarps; ++other) {
    total += room.above[other];
    all_equal += room.equal[other];
  }
  total += min(all_equal, t.n_equal);
  const unsigned below = (1u << lane) - 1u;
  for (int64_t i = begin; i < end; i += 32) {
    const uint32_t key = i + lane < end ? key_of(scores[i + lane]) : 0;
    const unsigned equal_lanes = __ballot_sync(kFullWarp, key == t.key);
    const bool equal_kept = key == t.key && equals + __popc(equal_lanes & below) < t.n_equal;
    const bool keep = i + lane < end && (key > t.key || equal_kept);
    const unsigned kept_lanes = __ballot_sync(kFullWarp, keep);
    if (keep) out.ids[kept + __popc(kept_lanes & below)] = static_cast<int32_t>(id_of(i + lane));
    kept += __popc(kept_lanes);
    equals += __popc(equal_lanes);
  }
  for (int64_t i = total + static_cast<int64_t>(threadIdx.x); i < out.k; i += kChooseThreads) {
    out.ids[i] = -1;
  }
  __syncthreads();
}

__device__ inline void write_all(int32_t* out, int64_t n, int64_t k) {
  for (int64_t i = threadIdx.x; i < k; i += kChooseThreads) {
    out[i] = i < n ? static_cast<int32_t>(i) : -1;
  }
}

// The best entries of a row (`list` 0) or its best blocks (1), by a block of kChooseThreads;
// `piece_row` counts from the piece's first.
__device__ inline void choose_list(const IndexKernelArgs& a, int64_t piece_row, int list,
                                   ChooseRoom& room) {
  const int64_t row = a.first_row + piece_row;
  const RowPlan plan = a.plan[row];
  if (list == 0) {
    int32_t* topk = a.topk + row * a.topk_stride;
    if (plan.settled) return write_all(topk, plan.visible, a.K);
    const float* scores = a.scores + piece_row * a.stride;
    const Threshold best = find_threshold(scores, plan.n_places, a.K, room);
    write_kept({scores, plan.n_places}, best, room, {topk, a.K},
               [&](int64_t place) { return entry_at(a, row, place); });
    return;
  }
  int32_t* pool = a.pool_out + row * a.pool_stride;
  if (plan.settled) return write_all(pool, plan.n_blocks, a.P);
  const float* tops = a.tops + piece_row * a.block_stride;
  const Threshold best = find_threshold(tops, plan.n_blocks, a.P, room);
  write_kept({tops, plan.n_blocks}, best, room, {pool, a.P}, [](int64_t block) { return block; });
}

}  // namespace fathom::cuda
