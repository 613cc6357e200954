#include "ops/cuda/index_select.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/tables.cuh"

namespace fathom::cuda {
namespace {

constexpr int kScoreThreads = 128;
constexpr int kChooseThreads = 1024;
constexpr int kWarps = kChooseThreads / 32;
constexpr int kDigits = 256;

// ---- plan ----

// Grid: a row each, one warp.
__global__ void __launch_bounds__(32) plan_kernel(const IndexKernelArgs a) {
  enter();
  const int64_t row = blockIdx.x;
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

// ---- scores ----

// The entry at a place; at or beyond `visible` where there is none.
__device__ int64_t entry_at(const IndexKernelArgs& a, int64_t row, int64_t place) {
  if (a.pool_in == nullptr) return place;
  const int64_t block = a.pool_in[row * a.pool_stride + place / a.block_size];
  return block * a.block_size + place % a.block_size;
}

// A block has kKeys places, kParts threads each: a key stands in a column of shared memory, the
// row's queries beside it, and each thread has the heads part, part + kParts, ... of its key. One
// thread then adds the heads in order.
constexpr int kParts = 8;
constexpr int kKeys = kScoreThreads / kParts;

// The product of a query and a key with the CPU's tree: 16 virtual lanes in one thread.
__device__ float head_product(const float* query, const float* key, int64_t width) {
  float acc[16] = {};
  for (int64_t k = 0; k < width; k += 32) {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      acc[j] = add_pair(acc[j], {query[k + j], query[k + j + 16]},
                        {key[(k + j) * kKeys], key[(k + j + 16) * kKeys]});
    }
  }
#pragma unroll
  for (int fold = 8; fold > 0; fold /= 2) {
#pragma unroll
    for (int j = 0; j < fold; ++j) acc[j] = acc[j] + acc[j + fold];
  }
  return acc[0];
}

struct ScoreRoom {
  float* q;    // [Hi, di], a head's stride one more than di, so that heads lie in different banks
  float* w;    // [Hi]
  float* key;  // [di, kKeys]
  float* dot;  // [Hi, kKeys]
  int64_t q_stride;
  __device__ ScoreRoom(float* memory, int64_t n_heads, int64_t width) : q_stride(width + 1) {
    q = memory;
    w = q + n_heads * q_stride;
    key = w + n_heads;
    dot = key + width * kKeys;
  }
  static size_t bytes(int64_t n_heads, int64_t width) {
    return static_cast<size_t>(n_heads * (width + 1) + n_heads + (width + n_heads) * kKeys) *
           sizeof(float);
  }
};

__device__ void load_queries(const IndexKernelArgs& a, int64_t row, const ScoreRoom& m) {
  for (int64_t i = threadIdx.x; i < a.n_heads * a.width; i += kScoreThreads) {
    m.q[i / a.width * m.q_stride + i % a.width] = bf16_to_float(a.q[row * a.n_heads * a.width + i]);
  }
  for (int64_t h = threadIdx.x; h < a.n_heads; h += kScoreThreads) {
    m.w[h] = round_to_bf16(bf16_to_float(a.weights[row * a.weight_stride + h]) * a.weight_scale);
  }
}

// The heads of one key in order.
__device__ float add_heads(const IndexKernelArgs& a, const ScoreRoom& m, int place) {
  float score = 0;
  for (int64_t h = 0; h < a.n_heads; ++h) {
    const float dot = m.dot[h * kKeys + place];
    if (a.mode == IndexScores::kF32) {
      score = __fmaf_rn(m.w[h], dot > 0.0f ? dot : 0.0f, score);
    } else {
      const float rounded = round_to_bf16(dot);
      score += round_to_bf16((rounded > 0.0f ? rounded : 0.0f) * m.w[h]);
    }
  }
  return a.mode == IndexScores::kF32 ? score : round_to_bf16(score);
}

__global__ void __launch_bounds__(kScoreThreads) score_kernel(const IndexKernelArgs a) {
  extern __shared__ float memory[];
  enter();
  const int64_t piece_row = blockIdx.y;
  const int64_t row = a.first_row + piece_row;
  const RowPlan plan = a.plan[row];
  const int64_t first = int64_t{blockIdx.x} * kKeys;
  if (plan.settled || first >= plan.n_places) return;
  const ScoreRoom m(memory, a.n_heads, a.width);
  const int place = static_cast<int>(threadIdx.x) % kKeys;
  const int part = static_cast<int>(threadIdx.x) / kKeys;
  const int64_t entry =
      first + place < plan.n_places ? entry_at(a, row, first + place) : plan.visible;
  const bool scored = entry < plan.visible;
  load_queries(a, row, m);
  if (scored) {
    const int64_t sequence = a.rows.sequence[row];
    const uint8_t* codes = payload(a.keys, sequence, entry);
    const uint8_t* scales = scale(a.keys, sequence, entry);
    for (int64_t k = part; k < a.width; k += kParts) {
      m.key[k * kKeys + place] =
          decode_e2m1(codes[k / 2] >> (k % 2 * 4)) * e8m0_to_float(scales[k / 32]);
    }
  }
  __syncthreads();
  if (scored) {
    for (int64_t h = part; h < a.n_heads; h += kParts) {
      m.dot[h * kKeys + place] = head_product(m.q + h * m.q_stride, m.key + place, a.width);
    }
  }
  __syncthreads();
  if (part != 0 || first + place >= plan.n_places) return;
  a.scores[piece_row * a.stride + first + place] = scored ? add_heads(a, m, place) : -INFINITY;
}

// The best score of every candidate block; the newest one is always kept.
__global__ void __launch_bounds__(kScoreThreads) top_kernel(const IndexKernelArgs a) {
  enter();
  const int64_t piece_row = blockIdx.y;
  const RowPlan plan = a.plan[a.first_row + piece_row];
  const int64_t block = int64_t{blockIdx.x} * kScoreThreads + threadIdx.x;
  if (plan.settled || block >= plan.n_blocks) return;
  const float* scores = a.scores + piece_row * a.stride + block * a.block_size;
  const int64_t n = min(a.block_size, plan.visible - block * a.block_size);
  float top = scores[0];
  for (int64_t i = 1; i < n; ++i) top = top < scores[i] ? scores[i] : top;
  a.tops[piece_row * a.block_stride + block] = block == plan.n_blocks - 1 ? INFINITY : top;
}

// ---- choice ----

// Larger scores have larger keys; 0 is never kept: -inf, NaN. The two zeros are one score.
__device__ uint32_t key_of(float score) {
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
__device__ void find_digit(ChooseRoom& room) {
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
__device__ Threshold find_threshold(const float* scores, int64_t n, int64_t k, ChooseRoom& room) {
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

__device__ void write_all(int32_t* out, int64_t n, int64_t k) {
  for (int64_t i = threadIdx.x; i < k; i += kChooseThreads) {
    out[i] = i < n ? static_cast<int32_t>(i) : -1;
  }
}

// Grid: a row each.
__global__ void __launch_bounds__(kChooseThreads) choose_kernel(const IndexKernelArgs a) {
  enter();
  __shared__ ChooseRoom room;
  const int64_t row = a.first_row + blockIdx.x;
  const RowPlan plan = a.plan[row];
  int32_t* topk = a.topk + row * a.topk_stride;
  int32_t* pool = a.pool_out == nullptr ? nullptr : a.pool_out + row * a.pool_stride;
  if (plan.settled) {
    write_all(topk, plan.visible, a.K);
    if (pool != nullptr) write_all(pool, plan.n_blocks, a.P);
    return;
  }
  const float* scores = a.scores + blockIdx.x * a.stride;
  const Threshold best = find_threshold(scores, plan.n_places, a.K, room);
  write_kept({scores, plan.n_places}, best, room, {topk, a.K},
             [&](int64_t place) { return entry_at(a, row, place); });
  if (pool == nullptr) return;
  const float* tops = a.tops + blockIdx.x * a.block_stride;
  const Threshold blocks = find_threshold(tops, plan.n_blocks, a.P, room);
  write_kept({tops, plan.n_blocks}, blocks, room, {pool, a.P}, [](int64_t block) { return block; });
}

}  // namespace

void launch_plan_rows(const IndexKernelArgs& args, cudaStream_t stream) {
  launch_dependent(plan_kernel, {static_cast<unsigned>(args.rows.n_rows), 32}, args, stream);
}

void launch_scores(const IndexKernelArgs& args, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(args.n_piece);
  const auto of = [](int64_t n, int each) { return static_cast<unsigned>((n + each - 1) / each); };
  const size_t bytes = ScoreRoom::bytes(args.n_heads, args.width);
  cudaFuncSetAttribute(score_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(bytes));
  if (args.stride > 0) {
    launch_dependent(score_kernel, {dim3(of(args.stride, kKeys), rows), kScoreThreads, bytes}, args,
                     stream);
  }
  if (args.pool_out != nullptr && args.block_stride > 0) {
    launch_dependent(top_kernel, {dim3(of(args.block_stride, kScoreThreads), rows), kScoreThreads},
                     args, stream);
  }
}

void launch_choose(const IndexKernelArgs& args, cudaStream_t stream) {
  launch_dependent(choose_kernel, {static_cast<unsigned>(args.n_piece), kChooseThreads}, args,
                   stream);
}

}  // namespace fathom::cuda
