#include "ops/cuda/mhc.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPredictThreads = 512;

unsigned blocks_for(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

// A thread for each channel of a row: it holds all streams.
__global__ void __launch_bounds__(kThreads) expand_kernel(const MhcArgs a) {
  enter();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.n_rows * a.hidden) return;
  const int64_t row = i / a.hidden;
  const int64_t d = i % a.hidden;
  uint16_t* residual = a.residual + row * a.n * a.hidden + d;
  const float* comb = a.comb + row * a.n * a.n;
  const float y = bf16_to_float(a.y[i]);
  float x[kMaxStreams];
  for (int64_t j = 0; j < a.n; ++j) x[j] = bf16_to_float(residual[j * a.hidden]);
  for (int64_t k = 0; k < a.n; ++k) {
    float sum = comb[k] * x[0];
    for (int64_t j = 1; j < a.n; ++j) sum += comb[j * a.n + k] * x[j];
    residual[k * a.hidden] = float_to_bf16(a.post[row * a.n + k] * y + sum);
  }
}

// Grid: a row each. Products with every row of fn and with itself, a half-warp each.
__global__ void __launch_bounds__(kPredictThreads) predict_kernel(const MhcArgs a) {
  enter();
  extern __shared__ uint16_t x[];
  __shared__ float sums[(2 + kMaxStreams) * kMaxStreams + 1];
  const int64_t width = a.n * a.hidden;
  const int64_t n_mix = (2 + a.n) * a.n;
  const uint16_t* residual = a.residual + blockIdx.x * width;
  for (int64_t i = threadIdx.x; i < width; i += kPredictThreads) x[i] = residual[i];
  __syncthreads();
  const int j = threadIdx.x % 16;
  // Both halves of a warp take part in every fold.
  for (int64_t first = 0; first < n_mix + 1; first += kPredictThreads / 16) {
    const int64_t o = first + threadIdx.x / 16;
    float acc = 0;
    if (o < n_mix) {
      const float* fn = a.fn + o * width;
#pragma unroll 8
      for (int64_t k = j; k < width; k += 32) {
        acc = add_pair(acc, {bf16_to_float(x[k]), bf16_to_float(x[k + 16])}, {fn[k], fn[k + 16]});
      }
    } else if (o == n_mix) {
      for (int64_t k = j; k < width; k += 32) {
        const float2 pair = {bf16_to_float(x[k]), bf16_to_float(x[k + 16])};
        acc = add_pair(acc, pair, pair);
      }
    }
    acc = fold_lanes(acc);
    if (j == 0 && o <= n_mix) sums[o] = acc;
  }
  __syncthreads();
  const float mean = __fdiv_rn(sums[n_mix], static_cast<float>(width));
  const float r = inverse_root(mean + a.norm_eps);
  for (int64_t o = threadIdx.x; o < n_mix; o += kPredictThreads) {
    a.mix[blockIdx.x * n_mix + o] = sums[o] * r;
  }
}

// Divides by the sum of a row, or of a column, which one lane adds in order.
__device__ void normalise(float* comb, int64_t n, bool columns, float eps) {
  const int64_t across = columns ? n : 1;
  const int64_t along = columns ? 1 : n;
  for (int64_t line = threadIdx.x; line < n; line += 32) {
    float* at = comb + line * along;
    float sum = at[0];
    for (int64_t i = 1; i < n; ++i) sum += at[i * across];
    for (int64_t i = 0; i < n; ++i) at[i * across] = __fdiv_rn(at[i * across], sum + eps);
  }
  __syncwarp();
}

__device__ void softmax_rows(float* comb, int64_t n, float eps) {
  for (int64_t line = threadIdx.x; line < n; line += 32) {
    float* row = comb + line * n;
    float top = row[0];
    for (int64_t k = 1; k < n; ++k) top = top < row[k] ? row[k] : top;
    float sum = 0;
    for (int64_t k = 0; k < n; ++k) {
      row[k] = exp_f32(row[k] - top);
      sum += row[k];
    }
    for (int64_t k = 0; k < n; ++k) row[k] = __fdiv_rn(row[k], sum) + eps;
  }
  __syncwarp();
}

// Grid: a row each, one warp.
__global__ void __launch_bounds__(32) coefficients_kernel(const MhcArgs a) {
  enter();
  __shared__ float comb[kMaxStreams * kMaxStreams];
  const int64_t n = a.n;
  const float* mix = a.mix + blockIdx.x * (2 + n) * n;
  for (int64_t j = threadIdx.x; j < n; j += 32) {
    a.new_pre[blockIdx.x * n + j] = sigmoid(mix[j] * a.scale[0] + a.base[j]) + a.hc_eps;
    a.new_post[blockIdx.x * n + j] = 2.0f * sigmoid(mix[n + j] * a.scale[1] + a.base[n + j]);
  }
  for (int64_t i = threadIdx.x; i < n * n; i += 32) {
    comb[i] = mix[2 * n + i] * a.scale[2] + a.base[2 * n + i];
  }
  __syncwarp();
  softmax_rows(comb, n, a.hc_eps);
  normalise(comb, n, true, a.hc_eps);
  for (int i = 1; i < a.iters; ++i) {
    normalise(comb, n, false, a.hc_eps);
    normalise(comb, n, true, a.hc_eps);
  }
  for (int64_t i = threadIdx.x; i < n * n; i += 32) a.new_comb[blockIdx.x * n * n + i] = comb[i];
}

__global__ void __launch_bounds__(kThreads) collapse_kernel(const MhcArgs a) {
  enter();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.n_rows * a.hidden) return;
  const int64_t row = i / a.hidden;
  const uint16_t* x = a.residual + row * a.n * a.hidden + i % a.hidden;
  const float* pre = a.pre + row * a.n;
  float sum = pre[0] * bf16_to_float(x[0]);
  for (int64_t s = 1; s < a.n; ++s) sum += pre[s] * bf16_to_float(x[s * a.hidden]);
  a.u[i] = float_to_bf16(sum);
}

}  // namespace

void launch_mhc_expand(const MhcArgs& args, cudaStream_t stream) {
  launch_dependent(expand_kernel, {blocks_for(args.n_rows * args.hidden), kThreads}, args, stream);
}

void launch_mhc_predict(const MhcArgs& args, cudaStream_t stream) {
  const auto bytes = static_cast<size_t>(args.n * args.hidden) * sizeof(uint16_t);
  if (bytes > 48 * 1024) {
    cudaFuncSetAttribute(predict_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(bytes));
  }
  launch_dependent(predict_kernel, {static_cast<unsigned>(args.n_rows), kPredictThreads, bytes},
                   args, stream);
}

void launch_mhc_coefficients(const MhcArgs& args, cudaStream_t stream) {
  launch_dependent(coefficients_kernel, {static_cast<unsigned>(args.n_rows), 32}, args, stream);
}

void launch_mhc_collapse(const MhcArgs& args, cudaStream_t stream) {
  launch_dependent(collapse_kernel, {blocks_for(args.n_rows * args.hidden), kThreads}, args,
                   stream);
}

}  // namespace fathom::cuda
