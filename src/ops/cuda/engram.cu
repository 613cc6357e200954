#include "ops/cuda/engram.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGateThreads = 512;

unsigned blocks_for(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

__global__ void __launch_bounds__(kThreads) gather_kernel(const EngramGatherKernelArgs a) {
  enter();
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

// Grid: a stream of a row each. All threads make the products of three sums, h h, key key and the
// weighted key, which a half-warp each then adds.
__global__ void __launch_bounds__(kGateThreads) gate_kernel(const EngramMixKernelArgs a) {
  enter();
  extern __shared__ float products[];  // [3, hidden / 2]
  __shared__ float sums[4];
  const int64_t row = blockIdx.x / a.n;
  const int64_t s = blockIdx.x % a.n;
  const int64_t half = a.hidden / 2;
  const uint16_t* h = a.residual + (row * a.n + s) * a.hidden;
  const uint16_t* key = a.kv + row * (a.n + 1) * a.hidden + s * a.hidden;
  const uint16_t* q_weight = a.q_weight + s * a.hidden;
  const uint16_t* k_weight = a.k_weight + s * a.hidden;
  for (int64_t i = threadIdx.x; i < half; i += kGateThreads) {
    const int64_t k = i / 16 * 32 + i % 16;
    const float2 x = {bf16_to_float(h[k]), bf16_to_float(h[k + 16])};
    const float2 y = {bf16_to_float(key[k]), bf16_to_float(key[k + 16])};
    const float2 w = {x.x * (bf16_to_float(q_weight[k]) * bf16_to_float(k_weight[k])),
                      x.y * (bf16_to_float(q_weight[k + 16]) * bf16_to_float(k_weight[k + 16]))};
    products[i] = __fmaf_rn(x.y, x.y, x.x * x.x);
    products[half + i] = __fmaf_rn(y.y, y.y, y.x * y.x);
    products[2 * half + i] = __fmaf_rn(w.y, y.y, w.x * y.x);
  }
  __syncthreads();
  if (threadIdx.x >= 64) return;
  const int sum = threadIdx.x / 16;
  const float* at = products + min(sum, 2) * half + threadIdx.x % 16;
  float acc = 0;
#pragma unroll 8
  for (int64_t b = 0; b < a.hidden / 32; ++b) acc = acc + at[b * 16];
  acc = fold_lanes(acc);
  if (threadIdx.x % 16 == 0) sums[sum] = acc;
  asm volatile("bar.sync 1, 64;" ::: "memory");
  if (threadIdx.x != 0) return;
  const float width = static_cast<float>(a.hidden);
  const float r = inverse_root(__fdiv_rn(sums[0], width) + a.eps) *
                  inverse_root(__fdiv_rn(sums[1], width) + a.eps);
  const float d = sums[2] * r * a.inverse_root;
  const float magnitude = fabsf(d) > 1e-6f ? fabsf(d) : 1e-6f;
  a.gates[blockIdx.x] = sigmoid(copysignf(__fsqrt_rn(magnitude), d));
}

__global__ void __launch_bounds__(kThreads) mix_kernel(const EngramMixKernelArgs a) {
  enter();
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
  launch_dependent(gather_kernel, {blocks_for(n), kThreads}, args, stream);
}

void launch_engram_gate(const EngramMixKernelArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(args.n_rows * args.n);
  const auto bytes = static_cast<size_t>(3 * args.hidden / 2) * sizeof(float);
  if (bytes > 40 * 1024) {
    cudaFuncSetAttribute(gate_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(bytes));
  }
  launch_dependent(gate_kernel, {blocks, kGateThreads, bytes, args.plain_edge}, args, stream);
}

void launch_engram_mix(const EngramMixKernelArgs& args, cudaStream_t stream) {
  const int64_t n = args.n_rows * args.n * args.hidden;
  launch_dependent(mix_kernel, {blocks_for(n), kThreads}, args, stream);
}

}  // namespace fathom::cuda
