#include "ops/cuda/index_select.h"

#include "ops/cuda/index_choice.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/tables.cuh"

namespace fathom::cuda {
namespace {

constexpr int kScoreThreads = 128;

// ---- plan ----

// Grid: a row each, one warp.
__global__ void __launch_bounds__(32) plan_kernel(const IndexKernelArgs a) {
  enter();
  plan_row(a, blockIdx.x);
}

// ---- scores ----

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

// Grid: a row each.
__global__ void __launch_bounds__(kChooseThreads) choose_kernel(const IndexKernelArgs a) {
  enter();
  __shared__ ChooseRoom room;
  choose_list(a, blockIdx.x, 0, room);
  if (a.pool_out != nullptr) choose_list(a, blockIdx.x, 1, room);
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
