#include "ops/cuda/engram.h"
#include "ops/cuda/math.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGateThreads = 64;  // of two warps: three sums, a half-warp each

unsigned blocks_for(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

__global__ void __launch_bounds__(kThreads) gather_kernel(const EngramGatherKernelArgs a) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t all = a.columns * a.width;
  if (i >= a.n_rows * all) return;
  const int64_t row = i / all;
  const int64_t at = i % all;
  const int64_t id = a.rows[row * a.row_stride + at / a.width];
  const int64_t d = at % a.width;
  const float scale = e8m0_to_float(a.scales[id * (a.width / 32) + d / 32]);
  a.out[row * a.out_stride + at] = float_to_bf16(e4m3_to_float(a.table[id * a.width + d]) * scale);
}

// Grid: a stream of a row each.
__global__ void __launch_bounds__(kGateThreads) gate_kernel(const EngramMixKernelArgs a) {
  __shared__ float sums[4];
  const int64_t row = blockIdx.x / a.n;
  const int64_t s = blockIdx.x % a.n;
  const uint16_t* h = a.residual + (row * a.n + s) * a.hidden;
  const uint16_t* key = a.kv + row * (a.n + 1) * a.hidden + s * a.hidden;
  const uint16_t* q_weight = a.q_weight + s * a.hidden;
  const uint16_t* k_weight = a.k_weight + s * a.hidden;
  const int sum = threadIdx.x / 16;  // 0: h h, 1: key key, 2: weighted key
  const auto left = [&](int64_t k) {
    const float value = bf16_to_float(sum == 1 ? key[k] : h[k]);
    if (sum != 2) return value;
    return value * (bf16_to_float(q_weight[k]) * bf16_to_float(k_weight[k]));
  };
  const auto right = [&](int64_t k) { return bf16_to_float(sum == 0 ? h[k] : key[k]); };
  float acc = 0;
  for (int64_t k = threadIdx.x % 16; sum < 3 && k < a.hidden; k += 32) {
    acc = add_pair(acc, {left(k), left(k + 16)}, {right(k), right(k + 16)});
  }
  acc = fold_lanes(acc);
  if (threadIdx.x % 16 == 0) sums[sum] = acc;
  __syncthreads();
  if (threadIdx.x != 0) return;
  const float width = static_cast<float>(a.hidden);
  const float r = inverse_root(__fdiv_rn(sums[0], width) + a.eps) *
                  inverse_root(__fdiv_rn(sums[1], width) + a.eps);
  const float d = sums[2] * r * a.inverse_root;
  const float magnitude = fabsf(d) > 1e-6f ? fabsf(d) : 1e-6f;
  a.gates[blockIdx.x] = sigmoid(copysignf(__fsqrt_rn(magnitude), d));
}

__global__ void __launch_bounds__(kThreads) mix_kernel(const EngramMixKernelArgs a) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.n_rows * a.n * a.hidden) return;
  const int64_t stream = i / a.hidden;  // row n + s
  const int64_t row = stream / a.n;
  if (a.dead != nullptr && a.dead[row] != 0) return;
  const uint16_t value = a.kv[(row * (a.n + 1) + a.n) * a.hidden + i % a.hidden];
  a.residual[i] =
      float_to_bf16(bf16_to_float(a.residual[i]) + a.gates[stream] * bf16_to_float(value));
}

}  // namespace

void launch_engram_gather(const EngramGatherKernelArgs& args, cudaStream_t stream) {
  const int64_t n = args.n_rows * args.columns * args.width;
  gather_kernel<<<blocks_for(n), kThreads, 0, stream>>>(args);
}

void launch_engram_gate(const EngramMixKernelArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(args.n_rows * args.n);
  gate_kernel<<<blocks, kGateThreads, 0, stream>>>(args);
}

void launch_engram_mix(const EngramMixKernelArgs& args, cudaStream_t stream) {
  const int64_t n = args.n_rows * args.n * args.hidden;
  mix_kernel<<<blocks_for(n), kThreads, 0, stream>>>(args);
}

}  // namespace fathom::cuda
