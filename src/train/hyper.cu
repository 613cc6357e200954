// Kernels of the hyper-connection site (spec/backbone.md 3.1) and of Engram's gate (3.2 g).

#include "train/device.cuh"
#include "train/kernels.h"

namespace fathom::train::gpu {

namespace {

constexpr int kStreams = 4;

// Lane l of the warp holds channels c * 128 + 4 l .. + 3 for c < kC.
template <int kC>
__device__ void load_row(const Bf16* p, float (&v)[kC][4], int lane) {
#pragma unroll
  for (int c = 0; c < kC; ++c) {
    load4(p + c * 128 + lane * 4, v[c]);
  }
}

template <int kC>
__global__ void __launch_bounds__(kThreads) hc_read_kernel(HcRead p, int64_t n) {
  constexpr int kDim = kC * 128;
  const int lane = threadIdx.x % 32;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (t >= n) {
    return;
  }
  float u[kC][4] = {};
  float flat = 0;
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
    float v[kC][4];
    load_row<kC>(p.streams + (t * kStreams + s) * kDim, v, lane);
    const float a = p.pre[t * kStreams + s];
#pragma unroll
    for (int i = 0; i < kC * 4; ++i) {
      flat += v[i / 4][i % 4] * v[i / 4][i % 4];
      u[i / 4][i % 4] += a * v[i / 4][i % 4];
    }
  }
  float square = 0;
#pragma unroll
  for (int i = 0; i < kC * 4; ++i) {
    u[i / 4][i % 4] = round_bf16(u[i / 4][i % 4]);
    square += u[i / 4][i % 4] * u[i / 4][i % 4];
  }
  const float rs = rsqrtf(warp_sum(square) / kDim + kRmsEps);
  flat = warp_sum(flat);
#pragma unroll
  for (int c = 0; c < kC; ++c) {
    float w[4];
    load4(p.w + c * 128 + lane * 4, w);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      u[c][e] = w[e] * (u[c][e] * rs);
    }
    store4(p.x + t * kDim + c * 128 + lane * 4, u[c]);
  }
  if (lane == 0) {
    p.r[t] = rsqrtf(flat / (kStreams * kDim) + kRmsEps);
  }
}

template <int kC>
__global__ void __launch_bounds__(kThreads) hc_read_grad_kernel(HcReadGrad p, int64_t n) {
  constexpr int kDim = kC * 128;
  const int lane = threadIdx.x % 32;
  float dw[kC][4] = {};
  float w[kC][4];
  load_row<kC>(p.w, w, lane);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t t = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; t < n;
       t += stride) {
    float v[kStreams][kC][4];
    float u[kC][4] = {};
    float a[kStreams];
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      load_row<kC>(p.streams + (t * kStreams + s) * kDim, v[s], lane);
      a[s] = p.pre[t * kStreams + s];
#pragma unroll
      for (int i = 0; i < kC * 4; ++i) {
        u[i / 4][i % 4] += a[s] * v[s][i / 4][i % 4];
      }
    }
    float g[kC][4];
    load_row<kC>(p.dx + t * kDim, g, lane);
    float square = 0;
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kC * 4; ++i) {
      float& x = u[i / 4][i % 4];
      x = round_bf16(x);
      square += x * x;
      dot += g[i / 4][i % 4] * w[i / 4][i % 4] * x;
    }
    const float rs = rsqrtf(warp_sum(square) / kDim + kRmsEps);
    dot = warp_sum(dot) * rs * rs * rs / kDim;
    float du[kC][4];
#pragma unroll
    for (int i = 0; i < kC * 4; ++i) {
      const int c = i / 4;
      const int e = i % 4;
      dw[c][e] += g[c][e] * u[c][e] * rs;
      du[c][e] = g[c][e] * w[c][e] * rs - dot * u[c][e];
    }
    const float cr = p.cr == nullptr ? 0.0F : p.cr[t];
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      const int64_t row = (t * kStreams + s) * kDim;
      float da = 0;
#pragma unroll
      for (int c = 0; c < kC; ++c) {
        float pass[4] = {};
        if (p.dpass != nullptr) {
          load4(p.dpass + row + c * 128 + lane * 4, pass);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          da += du[c][e] * v[s][c][e];
          pass[e] += a[s] * du[c][e] + cr * v[s][c][e];
        }
        store4(p.dstreams + row + c * 128 + lane * 4, pass);
      }
      da = warp_sum(da);
      if (lane == 0) {
        p.dpre[t * kStreams + s] = da;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kC * 4; ++i) {
    atomicAdd(p.dw + (i / 4) * 128 + lane * 4 + i % 4, dw[i / 4][i % 4]);
  }
}

template <int kC>
__global__ void __launch_bounds__(kThreads) hc_write_kernel(HcWrite p, Bf16* out, int64_t n) {
  constexpr int kDim = kC * 128;
  const int lane = threadIdx.x % 32;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (t >= n) {
    return;
  }
  float m[20];
#pragma unroll
  for (int i = 0; i < 20; ++i) {
    m[i] = p.mixw[t * 20 + i];
  }
#pragma unroll
  for (int c = 0; c < kC; ++c) {
    const int at = c * 128 + lane * 4;
    float y[4];
    float v[kStreams][4];
    load4(p.y + t * kDim + at, y);
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      load4(p.streams + (t * kStreams + s) * kDim + at, v[s]);
    }
#pragma unroll
    for (int k = 0; k < kStreams; ++k) {
      float o[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        o[e] = m[k] * y[e];
#pragma unroll
        for (int j = 0; j < kStreams; ++j) {
          o[e] += m[4 + 4 * j + k] * v[j][e];
        }
      }
      store4(out + (t * kStreams + k) * kDim + at, o);
    }
  }
}

template <int kC>
__global__ void __launch_bounds__(kThreads)
    hc_write_grad_kernel(HcWrite p, HcWriteGrad q, int64_t n) {
  constexpr int kDim = kC * 128;
  const int lane = threadIdx.x % 32;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (t >= n) {
    return;
  }
  float m[20];
  float dm[20] = {};
#pragma unroll
  for (int i = 0; i < 20; ++i) {
    m[i] = p.mixw[t * 20 + i];
  }
#pragma unroll
  for (int c = 0; c < kC; ++c) {
    const int at = c * 128 + lane * 4;
    float y[4];
    float dy[4] = {};
    float v[kStreams][4];
    float g[kStreams][4];
    load4(p.y + t * kDim + at, y);
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      load4(p.streams + (t * kStreams + s) * kDim + at, v[s]);
      load4(q.dout + (t * kStreams + s) * kDim + at, g[s]);
    }
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      float d[4] = {};
#pragma unroll
      for (int k = 0; k < kStreams; ++k) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          d[e] += m[4 + 4 * j + k] * g[k][e];
          dm[4 + 4 * j + k] += v[j][e] * g[k][e];
        }
      }
      store4(q.dstreams + (t * kStreams + j) * kDim + at, d);
    }
#pragma unroll
    for (int k = 0; k < kStreams; ++k) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        dy[e] += m[k] * g[k][e];
        dm[k] += y[e] * g[k][e];
      }
    }
    store4(q.dy + t * kDim + at, dy);
  }
  float mine = 0;
#pragma unroll
  for (int i = 0; i < 20; ++i) {
    const float sum = warp_sum(dm[i]);
    mine = lane == i ? sum : mine;
  }
  if (lane < 20) {
    q.dmixw[t * 20 + lane] = mine;
  }
}

template <int kC>
struct EngramRow {
  float h[kC][4];
  float k[kC][4];
  float w[kC][4];
  float hh, kk, dot, gate, d;

  __device__ void load(const Bf16* streams, const Bf16* key, const float* weight, int lane) {
    constexpr int kDim = kC * 128;
    load_row<kC>(streams, h, lane);
    load_row<kC>(key, k, lane);
    hh = kk = dot = 0;
#pragma unroll
    for (int c = 0; c < kC; ++c) {
      const float4 v = *reinterpret_cast<const float4*>(weight + c * 128 + lane * 4);
      w[c][0] = v.x;
      w[c][1] = v.y;
      w[c][2] = v.z;
      w[c][3] = v.w;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        hh += h[c][e] * h[c][e];
        kk += k[c][e] * k[c][e];
        dot += h[c][e] * w[c][e] * k[c][e];
      }
    }
    hh = rsqrtf(warp_sum(hh) / kDim + kRmsEps);
    kk = rsqrtf(warp_sum(kk) / kDim + kRmsEps);
    d = warp_sum(dot) * (hh * kk) * rsqrtf(static_cast<float>(kDim));
    gate = sigmoid(copysignf(sqrtf(fmaxf(fabsf(d), 1e-6F)), d));
  }
};

template <int kC>
__global__ void __launch_bounds__(kThreads)
    engram_kernel(const Bf16* streams, const Bf16* kv, const float* w, Bf16* out, int64_t n) {
  constexpr int kDim = kC * 128;
  const int lane = threadIdx.x % 32;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (t >= n) {
    return;
  }
  float value[kC][4];
  load_row<kC>(kv + (t * 5 + 4) * kDim, value, lane);
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
    const int64_t row = (t * kStreams + s) * kDim;
    EngramRow<kC> e;
    e.load(streams + row, kv + (t * 5 + s) * kDim, w + s * kDim, lane);
#pragma unroll
    for (int c = 0; c < kC; ++c) {
      float o[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        o[i] = e.h[c][i] + e.gate * value[c][i];
      }
      store4(out + row + c * 128 + lane * 4, o);
    }
  }
}

template <int kC>
__global__ void __launch_bounds__(kThreads) engram_grad_kernel(EngramGrad p, int64_t n) {
  constexpr int kDim = kC * 128;
  const int lane = threadIdx.x % 32;
  float dw[kStreams][kC][4] = {};
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t t = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; t < n;
       t += stride) {
    float value[kC][4];
    float dvalue[kC][4] = {};
    load_row<kC>(p.kv + (t * 5 + 4) * kDim, value, lane);
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      const int64_t row = (t * kStreams + s) * kDim;
      EngramRow<kC> r;
      float g[kC][4];
      r.load(p.streams + row, p.kv + (t * 5 + s) * kDim, p.w + s * kDim, lane);
      load_row<kC>(p.dout + row, g, lane);
      float dgate = 0;
#pragma unroll
      for (int i = 0; i < kC * 4; ++i) {
        dgate += g[i / 4][i % 4] * value[i / 4][i % 4];
        dvalue[i / 4][i % 4] += r.gate * g[i / 4][i % 4];
      }
      const float dz = warp_sum(dgate) * r.gate * (1 - r.gate);
      const float size = fabsf(r.d);
      const float dd = size > 1e-6F ? dz * 0.5F * rsqrtf(size) : 0.0F;
      const float cross = dd * r.hh * r.kk * rsqrtf(static_cast<float>(kDim));
      const float self_h = dd * r.d * r.hh * r.hh / kDim;
      const float self_k = dd * r.d * r.kk * r.kk / kDim;
#pragma unroll
      for (int c = 0; c < kC; ++c) {
        float dk[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          g[c][i] += cross * r.w[c][i] * r.k[c][i] - self_h * r.h[c][i];
          dk[i] = cross * r.w[c][i] * r.h[c][i] - self_k * r.k[c][i];
          dw[s][c][i] += cross * r.h[c][i] * r.k[c][i];
        }
        store4(p.dstreams + row + c * 128 + lane * 4, g[c]);
        store4(p.dkv + (t * 5 + s) * kDim + c * 128 + lane * 4, dk);
      }
    }
#pragma unroll
    for (int c = 0; c < kC; ++c) {
      store4(p.dkv + (t * 5 + 4) * kDim + c * 128 + lane * 4, dvalue[c]);
    }
  }
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
#pragma unroll
    for (int i = 0; i < kC * 4; ++i) {
      atomicAdd(p.dw + s * kDim + (i / 4) * 128 + lane * 4 + i % 4, dw[s][i / 4][i % 4]);
    }
  }
}

}  // namespace

#define FATHOM_BY_WIDTH(dim, call) \
  switch ((dim) / 128) {           \
    case 1: {                      \
      constexpr int kC = 1;        \
      call;                        \
      break;                       \
    }                              \
    case 2: {                      \
      constexpr int kC = 2;        \
      call;                        \
      break;                       \
    }                              \
    case 3: {                      \
      constexpr int kC = 3;        \
      call;                        \
      break;                       \
    }                              \
    default: {                     \
      constexpr int kC = 4;        \
      call;                        \
      break;                       \
    }                              \
  }

void hc_read_fwd(const HcRead& p, int64_t n, int dim, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  FATHOM_BY_WIDTH(dim, (hc_read_kernel<kC><<<full_grid(n, kWarps), kThreads, 0, s>>>(p, n)));
  check_launch("hc_read_fwd");
}

void hc_read_bwd(const HcReadGrad& p, int64_t n, int dim, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  FATHOM_BY_WIDTH(dim, (hc_read_grad_kernel<kC><<<persistent_grid(n), kThreads, 0, s>>>(p, n)));
  check_launch("hc_read_bwd");
}

void hc_write_fwd(const HcWrite& p, Bf16* out, int64_t n, int dim, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  FATHOM_BY_WIDTH(dim, (hc_write_kernel<kC><<<full_grid(n, kWarps), kThreads, 0, s>>>(p, out, n)));
  check_launch("hc_write_fwd");
}

void hc_write_bwd(const HcWrite& p, const HcWriteGrad& g, int64_t n, int dim, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  FATHOM_BY_WIDTH(dim,
                  (hc_write_grad_kernel<kC><<<full_grid(n, kWarps), kThreads, 0, s>>>(p, g, n)));
  check_launch("hc_write_bwd");
}

void engram_fwd(const Engram& p, int64_t n, int dim, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  FATHOM_BY_WIDTH(dim, (engram_kernel<kC><<<full_grid(n, kWarps), kThreads, 0, s>>>(
                           p.streams, p.kv, p.w, p.out, n)));
  check_launch("engram_fwd");
}

void engram_bwd(const EngramGrad& p, int64_t n, int dim, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  FATHOM_BY_WIDTH(dim, (engram_grad_kernel<kC><<<persistent_grid(n), kThreads, 0, s>>>(p, n)));
  check_launch("engram_bwd");
}

}  // namespace fathom::train::gpu
