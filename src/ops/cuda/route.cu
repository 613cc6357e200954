#include "ops/cuda/route.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;

__device__ float score_of(float v) { return __fsqrt_rn(v > 20.0f ? v : log1p_f32(exp_f32(v))); }

__global__ void __launch_bounds__(kThreads) sqrt_softplus_kernel(float* scores, int64_t n) {
  enter();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  scores[i] = score_of(scores[i]);
}

struct Best {
  float score;
  int id;
};

// Larger first, ties to the smaller id.
__device__ Best better(const Best& a, const Best& b) {
  if (b.score > a.score) return b;
  return b.score == a.score && b.id < a.id ? b : a;
}

// Grid: a row each, one warp: k times the best of what is left.
__global__ void __launch_bounds__(32) route_kernel(const RouteKernelArgs a) {
  enter();
  extern __shared__ float biased[];  // [E], then the scores [E]
  const int64_t row = blockIdx.x;
  const bool image = a.image_mask != nullptr && a.image_mask[row] != 0;
  const float* bias = image ? a.bias_image : a.bias;
  float* scores = biased + a.n_experts;
  for (int64_t e = threadIdx.x; e < a.n_experts; e += 32) {
    const float score = a.scores[row * a.n_experts + e];
    scores[e] = a.raw ? score_of(score) : score;
    biased[e] = scores[e] + bias[e];
  }
  __syncwarp();
  float* weights = a.weights + row * a.weight_stride;
  float sum = 0;
  for (int64_t i = 0; i < a.k; ++i) {
    Best best = {-INFINITY, static_cast<int>(a.n_experts)};
    for (int64_t e = threadIdx.x; e < a.n_experts; e += 32) {
      best = better(best, {biased[e], static_cast<int>(e)});
    }
#pragma unroll
    for (int width = 16; width > 0; width /= 2) {
      best = better(best, {__shfl_xor_sync(kFullWarp, best.score, width),
                           __shfl_xor_sync(kFullWarp, best.id, width)});
    }
    const int id = min(best.id, static_cast<int>(a.n_experts) - 1);
    sum += scores[id];
    if (threadIdx.x == 0) {
      a.ids[row * a.id_stride + i] = id;
      weights[i] = scores[id];
      biased[id] = -INFINITY;
    }
    __syncwarp();
  }
  if (threadIdx.x != 0) return;
  for (int64_t i = 0; i < a.k; ++i) weights[i] = __fdiv_rn(weights[i], sum + 1e-20f) * a.scale;
}

}  // namespace

void launch_sqrt_softplus(float* scores, int64_t n, cudaStream_t stream) {
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>((n + kThreads - 1) / kThreads);
  sqrt_softplus_kernel<<<blocks, kThreads, 0, stream>>>(scores, n);
}

void launch_route(const RouteKernelArgs& args, cudaStream_t stream) {
  const auto bytes = static_cast<size_t>(2 * args.n_experts) * sizeof(float);
  launch_dependent(route_kernel, {static_cast<unsigned>(args.n_rows), 32, bytes}, args, stream);
}

}  // namespace fathom::cuda
