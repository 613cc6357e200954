#include "ops/cuda/row_kernels.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

// 1 / RMS of a row in shared memory, from all threads: the products by all of them, their sums by
// 16 lanes. `products` has room for half the width.
__device__ float inverse_rms(const float* row, int64_t width, float* products, float eps) {
  __shared__ float shared_r;
  for (int64_t i = threadIdx.x; i < width / 2; i += kThreads) {
    const int64_t k = i / 16 * 32 + i % 16;
    products[i] = __fmaf_rn(row[k + 16], row[k + 16], row[k] * row[k]);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const float* at = products + threadIdx.x % 16;
    float acc = 0;
#pragma unroll 8
    for (int64_t b = 0; b < width / 32; ++b) acc = acc + at[b * 16];
    const float mean = __fdiv_rn(fold_lanes(acc), static_cast<float>(width));
    if (threadIdx.x == 0) shared_r = inverse_root(mean + eps);
  }
  __syncthreads();
  return shared_r;
}

// Grid: a row each, which waits in shared memory.
__global__ void __launch_bounds__(kThreads) norm_kernel(const NormRows a) {
  enter();
  extern __shared__ float row[];
  const uint16_t* x = a.x + blockIdx.x * a.x_stride;
  for (int64_t i = threadIdx.x; i < a.width; i += kThreads) row[i] = bf16_to_float(x[i]);
  __syncthreads();
  const float r = inverse_rms(row, a.width, row + a.width, a.eps);
  // The width is a multiple of 32, so whole warps take part in every round.
  for (int64_t i = threadIdx.x; i < a.width; i += kThreads) {
    const float y = round_to_bf16(bf16_to_float(a.weight[i]) * (row[i] * r));
    a.y[blockIdx.x * a.y_stride + i] = float_to_bf16(y);
    if (a.codes == nullptr) continue;
    const A8Code q = quantize_a8(y);
    a.codes[blockIdx.x * a.code_stride + i] = q.code;
    if (i % 32 == 0) a.scales[blockIdx.x * a.scale_stride + i / 32] = q.scale;
  }
}

// Channel i of a pair (u, v) turned; `other` is the pair's other channel.
__device__ float turned(float x, float other, bool second, float c, float s) {
  return round_to_bf16(second ? other * s + x * c : x * c - other * s);
}

// Grid: a row each: norm, rotation, A8.
__global__ void __launch_bounds__(kThreads) window_kernel(const WindowRowsArgs a) {
  enter();
  extern __shared__ float row[];
  const int64_t at = blockIdx.x;
  const uint16_t* x = a.x + at * a.x_stride;
  for (int64_t i = threadIdx.x; i < a.width; i += kThreads) row[i] = bf16_to_float(x[i]);
  __syncthreads();
  const float r = inverse_rms(row, a.width, row + a.width, a.eps);
  for (int64_t i = threadIdx.x; i < a.width; i += kThreads) {
    float y = round_to_bf16(bf16_to_float(a.weight[i]) * (row[i] * r));
    const float other = __shfl_xor_sync(kFullWarp, y, 1);
    const int64_t j = i / 2 - (a.width / 2 - a.half);
    if (j >= 0) {
      y = turned(y, other, i % 2 != 0, a.cos[at * a.half + j], a.sin[at * a.half + j]);
    }
    const A8Code q = quantize_a8(y);
    a.codes[at * a.code_stride + i] = q.code;
    if (i % 32 == 0) a.scales[at * a.scale_stride + i / 32] = q.scale;
  }
}

// A thread a channel: rotation, then IDX4 and back.
__global__ void __launch_bounds__(kThreads) index_queries_kernel(const RotateRows a) {
  enter();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.n_rows * a.heads * a.width) return;  // whole warps: the width is a multiple of 32
  const int64_t d = i % a.width;
  const int64_t row = i / a.width / a.heads;
  float x = bf16_to_float(a.x[i]);
  const float other = __shfl_xor_sync(kFullWarp, x, 1);
  const int64_t j = d / 2 - (a.width / 2 - a.half);
  if (j >= 0) {
    x = turned(x, other, d % 2 != 0, a.cos[row * a.half + j], a.sin[row * a.half + j]);
  }
  const A8Code q = quantize_idx4(x);
  a.y[i] = float_to_bf16(decode_e2m1(q.code) * e8m0_to_float(q.scale));
}

__global__ void __launch_bounds__(kThreads) rotate_kernel(const RotateRows a) {
  enter();
  const int64_t pairs = a.width / 2;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.n_rows * a.heads * pairs) return;
  const int64_t pair = i % pairs;
  const int64_t row = i / pairs / a.heads;
  const int64_t j = pair - (pairs - a.half);
  const uint32_t both = reinterpret_cast<const uint32_t*>(a.x)[i];
  uint32_t* out = reinterpret_cast<uint32_t*>(a.y) + i;
  if (j < 0) {
    *out = both;
    return;
  }
  const float u = __uint_as_float(both << 16);
  const float v = __uint_as_float(both & 0xffff0000u);
  const float c = a.cos[row * a.half + j];
  const float s = a.sign * a.sin[row * a.half + j];
  const uint32_t low = float_to_bf16(u * c - v * s);
  const uint32_t high = float_to_bf16(u * s + v * c);
  *out = low | high << 16;
}

__global__ void __launch_bounds__(kThreads) rotation_kernel(const RotationTable a) {
  enter();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.n * a.half) return;
  const float p = static_cast<float>(a.position[i / a.half]);
  sincos_f32(p * a.inv_freq[i % a.half], a.sin + i, a.cos + i);
}

__global__ void __launch_bounds__(kThreads) quantize_kernel(const QuantizeRows a) {
  enter();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.n_rows * a.width) return;  // whole warps: the width is a multiple of 32
  const int64_t row = i / a.width;
  const int64_t at = i % a.width;
  const A8Code q = quantize_a8(bf16_to_float(a.values[row * a.stride + at]));
  a.codes[row * a.code_stride + at] = q.code;
  if (at % 32 == 0) a.scales[row * a.scale_stride + at / 32] = q.scale;
}

__global__ void __launch_bounds__(kThreads) dequantize_kernel(const QuantizeRows a) {
  enter();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.n_rows * a.width) return;
  const int64_t row = i / a.width;
  const int64_t at = i % a.width;
  a.values[row * a.stride + at] = float_to_bf16(
      dequantize_a8({a.codes[row * a.code_stride + at], a.scales[row * a.scale_stride + at / 32]}));
}

__global__ void __launch_bounds__(kThreads) through_idx4_kernel(uint16_t* values, int64_t n) {
  enter();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const A8Code q = quantize_idx4(bf16_to_float(values[i]));
  values[i] = float_to_bf16(decode_e2m1(q.code) * e8m0_to_float(q.scale));
}

}  // namespace

void launch_norm(const NormRows& args, cudaStream_t stream) {
  if (args.n_rows == 0) return;
  const auto bytes = static_cast<size_t>(args.width + args.width / 2) * sizeof(float);
  if (bytes > 40 * 1024) {
    cudaFuncSetAttribute(norm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(bytes));
  }
  launch_dependent(norm_kernel, {static_cast<unsigned>(args.n_rows), kThreads, bytes}, args,
                   stream);
}

void launch_window_rows(const WindowRowsArgs& args, cudaStream_t stream) {
  if (args.n_rows == 0) return;
  const auto bytes = static_cast<size_t>(args.width + args.width / 2) * sizeof(float);
  launch_dependent(window_kernel, {static_cast<unsigned>(args.n_rows), kThreads, bytes}, args,
                   stream);
}

void launch_index_queries(const RotateRows& args, cudaStream_t stream) {
  const int64_t n = args.n_rows * args.heads * args.width;
  if (n > 0) launch_dependent(index_queries_kernel, {blocks_for(n), kThreads}, args, stream);
}

void launch_rotate(const RotateRows& args, cudaStream_t stream) {
  const int64_t n = args.n_rows * args.heads * args.width / 2;
  if (n > 0) launch_dependent(rotate_kernel, {blocks_for(n), kThreads}, args, stream);
}

void launch_rotation(const RotationTable& args, cudaStream_t stream) {
  const int64_t n = args.n * args.half;
  if (n > 0) launch_dependent(rotation_kernel, {blocks_for(n), kThreads}, args, stream);
}

void launch_quantize(const QuantizeRows& args, cudaStream_t stream) {
  const int64_t n = args.n_rows * args.width;
  if (n > 0) launch_dependent(quantize_kernel, {blocks_for(n), kThreads}, args, stream);
}

void launch_dequantize(const QuantizeRows& args, cudaStream_t stream) {
  const int64_t n = args.n_rows * args.width;
  if (n > 0) launch_dependent(dequantize_kernel, {blocks_for(n), kThreads}, args, stream);
}

void launch_through_idx4(uint16_t* values, int64_t n, cudaStream_t stream) {
  if (n > 0) through_idx4_kernel<<<blocks_for(n), kThreads, 0, stream>>>(values, n);
}

}  // namespace fathom::cuda
