// Coefficients of the hyper-connection site with Sinkhorn recomputed in the backward pass
// (spec/backbone.md 3.1), and the router (3.10). One thread a token.

#include "train/device.cuh"
#include "train/kernels.h"

namespace fathom::train::gpu {

namespace {

constexpr int kMaxIterations = 20;
constexpr int kMaxExperts = 16;

__device__ inline float exact_sigmoid(float v) { return 1.0F / (1.0F + expf(-v)); }

// Divides every row (or column) of the 4 x 4 matrix by its sum + eps and keeps the divisors.
template <bool kRows>
__device__ void normalise(float (&c)[16], float (&sums)[4], float eps) {
#pragma unroll
  for (int a = 0; a < 4; ++a) {
    float sum = 0;
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      sum += c[kRows ? 4 * a + b : 4 * b + a];
    }
    sums[a] = sum + eps;
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      c[kRows ? 4 * a + b : 4 * b + a] /= sums[a];
    }
  }
}

// The reverse of normalise: c holds the divided matrix, d its gradient; both go back one step.
template <bool kRows>
__device__ void unnormalise(float (&c)[16], float (&d)[16], const float (&sums)[4]) {
#pragma unroll
  for (int a = 0; a < 4; ++a) {
    float dot = 0;
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int i = kRows ? 4 * a + b : 4 * b + a;
      dot += d[i] * c[i];
    }
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int i = kRows ? 4 * a + b : 4 * b + a;
      d[i] = (d[i] - dot) / sums[a];
      c[i] *= sums[a];
    }
  }
}

// Softmax over k of each row, then + eps.
__device__ void row_softmax(float (&c)[16], float eps) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float top = fmaxf(fmaxf(c[4 * j], c[4 * j + 1]), fmaxf(c[4 * j + 2], c[4 * j + 3]));
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      c[4 * j + k] = expf(c[4 * j + k] - top);
      sum += c[4 * j + k];
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      c[4 * j + k] = c[4 * j + k] / sum + eps;
    }
  }
}

struct Logits {
  float mix[24];  // normalised projection
  float v[24];    // after scale and base

  __device__ void load(const HcCoef& p, int64_t t) {
    const float r = p.r[t];
#pragma unroll
    for (int i = 0; i < 24; ++i) {
      mix[i] = (p.mix[t * 48 + i] + p.mix[t * 48 + 24 + i]) * r;
      v[i] = mix[i] * p.scale[i < 4 ? 0 : (i < 8 ? 1 : 2)] + p.base[i];
    }
  }
};

__global__ void coef_kernel(HcCoef p, float* pre, float* mixw, int64_t n) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (t >= n) {
    return;
  }
  Logits l;
  l.load(p, t);
  float c[16];
  float sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pre[t * 4 + i] = exact_sigmoid(l.v[i]) + p.eps;
    mixw[t * 20 + i] = 2 * exact_sigmoid(l.v[4 + i]);
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    c[i] = l.v[8 + i];
  }
  row_softmax(c, p.eps);
  normalise<false>(c, sums, p.eps);
  for (int i = 1; i < p.iterations; ++i) {
    normalise<true>(c, sums, p.eps);
    normalise<false>(c, sums, p.eps);
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    mixw[t * 20 + 4 + i] = c[i];
  }
}

// Gradient of the 16 combination logits from that of the matrix; recomputes the forward pass.
__device__ void sinkhorn_grad(const HcCoef& p, float (&c)[16], float (&d)[16]) {
  float rows[kMaxIterations][4];
  float columns[kMaxIterations][4];
  row_softmax(c, p.eps);
  normalise<false>(c, columns[0], p.eps);
  for (int i = 1; i < p.iterations; ++i) {
    normalise<true>(c, rows[i], p.eps);
    normalise<false>(c, columns[i], p.eps);
  }
  for (int i = p.iterations - 1; i > 0; --i) {
    unnormalise<false>(c, d, columns[i]);
    unnormalise<true>(c, d, rows[i]);
  }
  unnormalise<false>(c, d, columns[0]);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float dot = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      c[4 * j + k] -= p.eps;
      dot += c[4 * j + k] * d[4 * j + k];
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      d[4 * j + k] = c[4 * j + k] * (d[4 * j + k] - dot);
    }
  }
}

__global__ void coef_grad_kernel(HcCoef p, HcCoefGrad g, int width, int64_t n) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (t >= n) {
    return;
  }
  Logits l;
  l.load(p, t);
  float dl[24];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float a = exact_sigmoid(l.v[i]);
    const float b = exact_sigmoid(l.v[4 + i]);
    dl[i] = g.dpre[t * 4 + i] * a * (1 - a);
    dl[4 + i] = g.dmixw[t * 20 + i] * 2 * b * (1 - b);
  }
  float c[16];
  float d[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    c[i] = l.v[8 + i];
    d[i] = g.dmixw[t * 20 + 4 + i];
  }
  sinkhorn_grad(p, c, d);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    dl[8 + i] = d[i];
  }
  const float r = p.r[t];
  float dr = 0;
  float dscale[3] = {};
#pragma unroll
  for (int i = 0; i < 24; ++i) {
    const float scaled = dl[i] * p.scale[i < 4 ? 0 : (i < 8 ? 1 : 2)];
    g.dmix[t * 24 + i] = narrow(scaled * r);
    dr += scaled * l.mix[i];
    g.dsum[t * 27 + i] = dl[i];
    dscale[i < 4 ? 0 : (i < 8 ? 1 : 2)] += dl[i] * l.mix[i];
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    g.dsum[t * 27 + 24 + i] = dscale[i];
  }
  // mix = projection * r, so the sum above is r * d/dr; dr/dx = -r^3 x / width.
  g.cr[t] = -dr * r * r / width;
}

__device__ inline float score(float logit) {
  return sqrtf(logit > 20.0F ? logit : log1pf(expf(logit)));
}

__global__ void route_kernel(const float* logits, const float* bias, float* wt, float* load,
                             int64_t n, int experts, int top, float factor) {
  __shared__ float counts[kMaxExperts];
  if (threadIdx.x < kMaxExperts) {
    counts[threadIdx.x] = 0;
  }
  __syncthreads();
  const int64_t t = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (t < n) {
    float sc[kMaxExperts];
    unsigned chosen = 0;
    float sum = 0;
    for (int e = 0; e < experts; ++e) {
      sc[e] = score(logits[t * experts + e]);
    }
    for (int k = 0; k < top; ++k) {
      int best = -1;
      for (int e = 0; e < experts; ++e) {
        if ((chosen >> e & 1) == 0 && (best < 0 || sc[e] + bias[e] > sc[best] + bias[best])) {
          best = e;
        }
      }
      chosen |= 1U << best;
      sum += sc[best];
      atomicAdd(&counts[best], 1.0F);
    }
    for (int e = 0; e < experts; ++e) {
      wt[t * experts + e] = (chosen >> e & 1) != 0 ? sc[e] / (sum + 1e-20F) * factor : 0.0F;
    }
  }
  __syncthreads();
  if (threadIdx.x < experts) {
    atomicAdd(load + threadIdx.x, counts[threadIdx.x]);
  }
}

// wt = factor * sc / sum over the chosen; d sc = (dwt - sum(dwt wt) / factor) * factor / sum.
__global__ void route_grad_kernel(const float* logits, const float* wt, const float* dwt,
                                  float* dlogits, int64_t n, int experts, float factor) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (t >= n) {
    return;
  }
  float sum = 0;
  float dot = 0;
  for (int e = 0; e < experts; ++e) {
    const int64_t i = t * experts + e;
    if (wt[i] > 0) {
      sum += score(logits[i]);
      dot += dwt[i] * wt[i];
    }
  }
  for (int e = 0; e < experts; ++e) {
    const int64_t i = t * experts + e;
    float d = 0;
    if (wt[i] > 0) {
      const float v = logits[i];
      d = (dwt[i] - dot / factor) * factor / (sum + 1e-20F);
      d *= 0.5F / score(v) * (v > 20.0F ? 1.0F : exact_sigmoid(v));
    }
    dlogits[i] = d;
  }
}

}  // namespace

void hc_coef_fwd(const HcCoef& p, float* pre, float* mixw, int64_t n, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  coef_kernel<<<full_grid(n, 128), 128, 0, s>>>(p, pre, mixw, n);
  check_launch("hc_coef_fwd");
}

void hc_coef_bwd(const HcCoef& p, const HcCoefGrad& g, int width, int64_t n, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  coef_grad_kernel<<<full_grid(n, 128), 128, 0, s>>>(p, g, width, n);
  check_launch("hc_coef_bwd");
}

void route_fwd(const Route& p, int64_t n, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  route_kernel<<<full_grid(n, 256), 256, 0, s>>>(p.logits, p.bias, p.wt, p.load, n, p.experts,
                                                 p.top, p.factor);
  check_launch("route_fwd");
}

void route_bwd(const RouteGrad& p, int64_t n, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  route_grad_kernel<<<full_grid(n, 256), 256, 0, s>>>(p.logits, p.wt, p.dwt, p.dlogits, n,
                                                      p.experts, p.factor);
  check_launch("route_bwd");
}

}  // namespace fathom::train::gpu
