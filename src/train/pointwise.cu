// Norms, rotations, simulated quantisers, the expert activation and the cross entropy.

#include <cstdio>
#include <cstdlib>

#include "train/device.cuh"
#include "train/kernels.h"

namespace fathom::train::gpu {

void check_launch(const char* name) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    std::fprintf(stderr, "cuda: kernel %s failed: %s\n", name, cudaGetErrorString(error));
    std::abort();
  }
}

void synchronize() {
  cudaDeviceSynchronize();
  check_launch("synchronize");
}

namespace {

template <int kPer>
__global__ void __launch_bounds__(kThreads)
    norm_kernel(const Bf16* x, int64_t ldx, const Bf16* w, Bf16* y, int64_t rows) {
  constexpr int kDim = kPer * 32;
  const int lane = threadIdx.x % 32;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (t >= rows) {
    return;
  }
  float v[kPer];
  float square = 0;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    v[i] = widen(x[t * ldx + i * 32 + lane]);
    square += v[i] * v[i];
  }
  const float rs = rsqrtf(warp_sum(square) / kDim + kRmsEps);
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    y[t * kDim + i * 32 + lane] = narrow(widen(w[i * 32 + lane]) * (v[i] * rs));
  }
}

template <int kPer>
__global__ void __launch_bounds__(kThreads) norm_grad_kernel(RmsNormGrad p, int64_t rows) {
  constexpr int kDim = kPer * 32;
  const int lane = threadIdx.x % 32;
  float dw[kPer] = {};
  float w[kPer];
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    w[i] = widen(p.w[i * 32 + lane]);
  }
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t t = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; t < rows;
       t += stride) {
    float v[kPer];
    float g[kPer];
    float square = 0;
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      v[i] = widen(p.x[t * p.ldx + i * 32 + lane]);
      g[i] = widen(p.dy[t * kDim + i * 32 + lane]);
      square += v[i] * v[i];
      dot += g[i] * w[i] * v[i];
    }
    const float rs = rsqrtf(warp_sum(square) / kDim + kRmsEps);
    dot = warp_sum(dot) * rs * rs * rs / kDim;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      dw[i] += g[i] * v[i] * rs;
      p.dx[t * kDim + i * 32 + lane] = narrow(g[i] * w[i] * rs - dot * v[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    atomicAdd(p.dw + i * 32 + lane, dw[i]);
  }
}

// One thread eight channels.
__global__ void rope_kernel(Rope p) {
  const int chunks = p.dim / 8;
  const int64_t id = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (id >= p.rows * p.heads * chunks) {
    return;
  }
  const int at = static_cast<int>(id % chunks) * 8 - (p.dim - p.rope);
  float v[8];
  load8(p.x + id * 8, v);
  if (at >= 0) {
    const int64_t row = id / (static_cast<int64_t>(chunks) * p.heads);
    const int64_t position = row % p.length * p.step;
    const float* angles = p.table + position * p.rope + at;
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const float c = angles[i];
      const float s = p.inverse ? -angles[i + 1] : angles[i + 1];
      const float a = v[i];
      const float b = v[i + 1];
      v[i] = a * c - b * s;
      v[i + 1] = a * s + b * c;
    }
  }
  store8(p.y + id * 8, v);
}

// 2^ceil(log2 t) by the bits of t, as spec/backbone.md 2.2 defines it.
__device__ inline float pow2ceil(float t) {
  const uint32_t bits = __float_as_uint(t);
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFFU) != 0 ? 1 : 0);
  return __uint_as_float(exponent << 23);
}

__device__ inline float round_e4m3(float v) {
  const float size = fabsf(v);
  // Spacing of E4M3 around v: 2^(e - 3), at least 2^-9. Both steps below are exact.
  const int e = max(static_cast<int>(__float_as_uint(size) >> 23) - 127, -6);
  const float step = __uint_as_float(static_cast<uint32_t>(e - 3 + 127) << 23);
  return copysignf(fminf(rintf(size / step) * step, 448.0F), v);
}

__device__ inline float round_e2m1(float v) {
  const float size = fminf(fabsf(v), 6.0F);
  const float step = size < 2.0F ? 0.5F : (size < 4.0F ? 1.0F : 2.0F);
  return copysignf(rintf(size / step) * step, v);
}

template <int kKind>
__global__ void quant_kernel(const Bf16* x, Bf16* y, int64_t blocks) {
  constexpr int kBlock = kKind == 2 ? 16 : 32;
  const int64_t id = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (id >= blocks) {
    return;
  }
  float v[kBlock];
  float top = 0;
#pragma unroll
  for (int i = 0; i < kBlock; i += 8) {
    load8(x + id * kBlock + i, v + i);
  }
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    top = fmaxf(top, fabsf(v[i]));
  }
  float s;
  if constexpr (kKind == 0) {
    s = pow2ceil(fmaxf(top, 1e-4F) * __uint_as_float(0x3B124925U));
  } else if constexpr (kKind == 1) {
    s = pow2ceil(fmaxf(top, 7.052966e-38F) * __uint_as_float(0x3E2AAAABU));
  } else {
    s = round_e4m3(fmaxf(top, 0.01171875F) / 6.0F);
  }
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    v[i] = (kKind == 0 ? round_e4m3(v[i] / s) : round_e2m1(v[i] / s)) * s;
  }
#pragma unroll
  for (int i = 0; i < kBlock; i += 8) {
    store8(y + id * kBlock + i, v + i);
  }
}

// One thread eight channels of one expert.
__global__ void swiglu_kernel(Swiglu p, Bf16* h, int64_t n) {
  const int per_expert = p.width / 8;
  const int per_token = per_expert * (p.experts + 1);
  const int64_t id = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (id >= n * per_token) {
    return;
  }
  const int64_t t = id / per_token;
  const int at = static_cast<int>(id % per_token);
  const int expert = at / per_expert;
  const float wt = expert < p.experts ? p.wt[t * p.experts + expert] : 1.0F;
  float out[8] = {};
  if (wt != 0) {
    float gate[8];
    float up[8];
    load8(p.gu + t * per_token * 16 + at * 8, gate);
    load8(p.gu + t * per_token * 16 + per_token * 8 + at * 8, up);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float g = fminf(gate[i], p.limit);
      out[i] = wt * (g * sigmoid(g) * fminf(fmaxf(up[i], -p.limit), p.limit));
    }
  }
  store8(h + id * 8, out);
}

// One block a token, one thread eight channels of one expert.
__global__ void swiglu_grad_kernel(Swiglu p, const Bf16* dh, Bf16* dgu, float* dwt, int64_t n) {
  extern __shared__ float sums[];
  const int per_expert = p.width / 8;
  const int per_token = per_expert * (p.experts + 1);
  const int64_t t = blockIdx.x;
  const int at = threadIdx.x;
  if (at < p.experts + 1) {
    sums[at] = 0;
  }
  __syncthreads();
  if (at < per_token) {
    const int expert = at / per_expert;
    const float wt = expert < p.experts ? p.wt[t * p.experts + expert] : 1.0F;
    float dg[8] = {};
    float du[8] = {};
    if (wt != 0) {
      float gate[8];
      float up[8];
      float d[8];
      load8(p.gu + t * per_token * 16 + at * 8, gate);
      load8(p.gu + t * per_token * 16 + per_token * 8 + at * 8, up);
      load8(dh + t * per_token * 8 + at * 8, d);
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float g = fminf(gate[i], p.limit);
        const float u = fminf(fmaxf(up[i], -p.limit), p.limit);
        const float s = sigmoid(g);
        sum += d[i] * g * s * u;
        const float da = wt * d[i];
        dg[i] = gate[i] <= p.limit ? da * u * (s + g * s * (1 - s)) : 0.0F;
        du[i] = fabsf(up[i]) <= p.limit ? da * g * s : 0.0F;
      }
      atomicAdd(&sums[expert], sum);
    }
    store8(dgu + t * per_token * 16 + at * 8, dg);
    store8(dgu + t * per_token * 16 + per_token * 8 + at * 8, du);
  }
  __syncthreads();
  if (at < p.experts) {
    dwt[t * p.experts + at] = sums[at];
  }
}

__device__ float block_reduce(float v, float* shared, bool max) {
  v = max ? warp_max(v) : warp_sum(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    shared[threadIdx.x / 32] = v;
  }
  __syncthreads();
  float out = shared[0];
  for (int i = 1; i < kWarps; ++i) {
    out = max ? fmaxf(out, shared[i]) : out + shared[i];
  }
  return out;
}

// One block a row; up to 16 values of eight a thread.
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(Bf16* logits, const int64_t* target, const float* weight, float* nll,
                         int vocab) {
  __shared__ float shared[kWarps];
  const int64_t row = blockIdx.x;
  Bf16* line = logits + row * vocab;
  float top = -1e30F;
  for (int i = threadIdx.x * 8; i < vocab; i += kThreads * 8) {
    float v[8];
    load8(line + i, v);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      top = fmaxf(top, v[e]);
    }
  }
  top = block_reduce(top, shared, true);
  float sum = 0;
  for (int i = threadIdx.x * 8; i < vocab; i += kThreads * 8) {
    float v[8];
    load8(line + i, v);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      sum += __expf(v[e] - top);
    }
  }
  sum = block_reduce(sum, shared, false);
  const int64_t answer = target[row];
  const float w = weight[row];
  if (threadIdx.x == 0) {
    nll[row] = logf(sum) + top - widen(line[answer]);
  }
  __syncthreads();
  const float factor = w / sum;
  for (int i = threadIdx.x * 8; i < vocab; i += kThreads * 8) {
    float v[8];
    load8(line + i, v);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      v[e] = __expf(v[e] - top) * factor - (i + e == answer ? w : 0.0F);
    }
    store8(line + i, v);
  }
}

}  // namespace

#define FATHOM_BY_DIM(dim, call)     \
  switch (dim) {                     \
    case 32: {                       \
      constexpr int kPer = 1;        \
      call;                          \
      break;                         \
    }                                \
    case 64: {                       \
      constexpr int kPer = 2;        \
      call;                          \
      break;                         \
    }                                \
    case 128: {                      \
      constexpr int kPer = 4;        \
      call;                          \
      break;                         \
    }                                \
    case 256: {                      \
      constexpr int kPer = 8;        \
      call;                          \
      break;                         \
    }                                \
    case 384: {                      \
      constexpr int kPer = 12;       \
      call;                          \
      break;                         \
    }                                \
    default:                         \
      check_launch("width of norm"); \
      std::abort();                  \
  }

void rms_norm_fwd(const RmsNorm& p, int64_t rows, int dim, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  FATHOM_BY_DIM(dim, (norm_kernel<kPer>
                      <<<full_grid(rows, kWarps), kThreads, 0, s>>>(p.x, p.ldx, p.w, p.y, rows)));
  check_launch("rms_norm_fwd");
}

void rms_norm_bwd(const RmsNormGrad& p, int64_t rows, int dim, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  FATHOM_BY_DIM(dim, (norm_grad_kernel<kPer><<<persistent_grid(rows), kThreads, 0, s>>>(p, rows)));
  check_launch("rms_norm_bwd");
}

void rope(const Rope& p, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  rope_kernel<<<full_grid(p.rows * p.heads * (p.dim / 8), 256), 256, 0, s>>>(p);
  check_launch("rope");
}

void fake_quant(int kind, const Bf16* x, Bf16* y, int64_t elements, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  const int64_t blocks = elements / (kind == 2 ? 16 : 32);
  const int grid = full_grid(blocks, 128);
  if (kind == 0) {
    quant_kernel<0><<<grid, 128, 0, s>>>(x, y, blocks);
  } else if (kind == 1) {
    quant_kernel<1><<<grid, 128, 0, s>>>(x, y, blocks);
  } else {
    quant_kernel<2><<<grid, 128, 0, s>>>(x, y, blocks);
  }
  check_launch("fake_quant");
}

void swiglu_fwd(const Swiglu& p, Bf16* h, int64_t n, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  const int64_t items = n * (p.width / 8) * (p.experts + 1);
  swiglu_kernel<<<full_grid(items, 256), 256, 0, s>>>(p, h, n);
  check_launch("swiglu_fwd");
}

void swiglu_bwd(const Swiglu& p, const SwigluGrad& g, int64_t n, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  const int threads = ((p.width / 8) * (p.experts + 1) + 31) / 32 * 32;
  const size_t shared = (p.experts + 1) * sizeof(float);
  swiglu_grad_kernel<<<static_cast<int>(n), threads, shared, s>>>(p, g.dh, g.dgu, g.dwt, n);
  check_launch("swiglu_bwd");
}

void cross_entropy(const CrossEntropy& p, int64_t rows, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  cross_entropy_kernel<<<static_cast<int>(rows), kThreads, 0, s>>>(p.logits, p.target, p.weight,
                                                                   p.nll, p.vocab);
  check_launch("cross_entropy");
}

}  // namespace fathom::train::gpu
