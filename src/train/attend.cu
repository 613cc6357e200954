// The softmax core of attention over [window | global] with a sink, and the selection of entries.

#include "train/device.cuh"
#include "train/kernels.h"

namespace fathom::train::gpu {

namespace {

constexpr int kMaxWindow = 128;

// What one (token, head) row may see.
struct Row {
  int64_t token;
  int head, first, last, visible;  // window keys [first, last), global entries [0, visible)

  __device__ Row(const Attend& p, int64_t row) {
    token = row / p.heads;
    head = static_cast<int>(row % p.heads);
    const int t = static_cast<int>(token % p.length);
    const int offset = t % p.window;
    first = max(offset + 1, p.window - (t - offset));
    last = offset + 1 + p.window;
    visible = p.entries > 0 ? (t + 1) / p.ratio : 0;
  }
};

__device__ inline uint8_t visible_byte(const Attend& p, const Row& row, int entry) {
  if (entry >= row.visible) {
    return 0;
  }
  const int left = row.visible - entry;
  const uint8_t causal = left >= 8 ? 0xFF : static_cast<uint8_t>((1U << left) - 1);
  return p.mask == nullptr ? causal : causal & p.mask[row.token * (p.entries / 8) + entry / 8];
}

// kChunks blocks of 256 entries; lane l holds entries c * 256 + 8 l .. + 7.
template <int kChunks>
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(Attend p, Bf16* sw, Bf16* sg, float* lse) {
  constexpr int kWindowPer = 2 * kMaxWindow / 32;
  const int lane = threadIdx.x % 32;
  const int64_t id = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (id >= p.tokens * p.heads) {
    return;
  }
  const Row row(p, id);
  const float sink = p.sink[row.head];
  Bf16* wline = sw + id * 2 * p.window;
  Bf16* gline = sg + id * p.entries;
  float w[kWindowPer];
  uint4 g[kChunks];
  uint8_t seen[kChunks];
  float top = sink;
#pragma unroll
  for (int i = 0; i < kWindowPer; ++i) {
    const int at = i * 32 + lane;
    const bool ok = at >= row.first && at < row.last;
    w[i] = ok ? widen(wline[at]) * p.scale : -1e30F;
    top = fmaxf(top, w[i]);
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int at = c * 256 + lane * 8;
    seen[c] = visible_byte(p, row, at);
    if (seen[c] != 0) {
      g[c] = *reinterpret_cast<const uint4*>(gline + at);
      float v[8];
      unpack8(g[c], v);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        top = (seen[c] >> e & 1) != 0 ? fmaxf(top, v[e] * p.scale) : top;
      }
    }
  }
  top = warp_max(top);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWindowPer; ++i) {
    w[i] = w[i] > -1e29F ? __expf(w[i] - top) : 0.0F;
    sum += w[i];
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (seen[c] != 0) {
      float v[8];
      unpack8(g[c], v);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        sum += (seen[c] >> e & 1) != 0 ? __expf(v[e] * p.scale - top) : 0.0F;
      }
    }
  }
  sum = warp_sum(sum) + __expf(sink - top);
  const float inverse = 1.0F / sum;
#pragma unroll
  for (int i = 0; i < kWindowPer; ++i) {
    if (i * 32 + lane < 2 * p.window) {
      wline[i * 32 + lane] = narrow(w[i] * inverse);
    }
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int at = c * 256 + lane * 8;
    float v[8] = {};
    if (seen[c] != 0) {
      unpack8(g[c], v);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        v[e] = (seen[c] >> e & 1) != 0 ? __expf(v[e] * p.scale - top) * inverse : 0.0F;
      }
    }
    if (at < p.entries) {
      store8(gline + at, v);
    }
  }
  if (lane == 0) {
    lse[id] = top + logf(sum);
  }
}

__global__ void __launch_bounds__(kThreads) softmax_grad_kernel(Attend p, AttendGrad q) {
  const int lane = threadIdx.x % 32;
  const int64_t id = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (id >= p.tokens * p.heads) {
    return;
  }
  const Row row(p, id);
  float dot = 0;
  for (int i = lane; i < p.dim; i += 32) {
    dot += widen(q.out[id * p.dim + i]) * widen(q.dout[id * p.dim + i]);
  }
  dot = warp_sum(dot);
  for (int i = lane * 4; i < 2 * p.window; i += 128) {
    float pr[4];
    float d[4];
    load4(q.pw + id * 2 * p.window + i, pr);
    load4(q.dpw + id * 2 * p.window + i, d);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      d[e] = pr[e] * (d[e] - dot) * p.scale;
    }
    store4(q.dpw + id * 2 * p.window + i, d);
  }
  for (int i = lane * 8; i < p.entries; i += 256) {
    float d[8] = {};
    if (visible_byte(p, row, i) != 0) {
      float pr[8];
      load8(q.pg + id * p.entries + i, pr);
      load8(q.dpg + id * p.entries + i, d);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        d[e] = pr[e] * (d[e] - dot) * p.scale;
      }
    }
    store8(q.dpg + id * p.entries + i, d);
  }
  if (lane == 0) {
    q.dsink[id] = -__expf(p.sink[row.head] - q.lse[id]) * dot;
  }
}

// Larger score, larger key; 0 stands for "not there".
__device__ inline uint32_t order_key(float v) {
  const uint32_t bits = __float_as_uint(v + 0.0F);  // -0 and 0 are one number
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

// The largest key such that at least `top` of the warp's keys reach it.
template <int kCount>
__device__ uint32_t threshold(const uint32_t (&key)[kCount], int top) {
  uint32_t best = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const uint32_t candidate = best | (1U << bit);
    unsigned count = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      count += key[i] >= candidate ? 1 : 0;
    }
    if (__reduce_add_sync(kFull, count) >= static_cast<unsigned>(top)) {
      best = candidate;
    }
  }
  return best;
}

// Inclusive prefix sum over the lanes, minus the lane's own value.
__device__ inline int lanes_before(int value, int lane) {
  int sum = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(kFull, sum, offset);
    sum += lane >= offset ? other : 0;
  }
  return sum - value;
}

template <int kChunks>
__device__ void keep_pool(const IndexSelect& p, const uint32_t (&key)[kChunks * 8], int64_t token,
                          int visible) {
  const int lane = threadIdx.x % 32;
  const int newest = visible > 0 ? (visible - 1) / 8 : -1;
  uint32_t block[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    block[c] = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      block[c] = max(block[c], key[c * 8 + e]);
    }
    block[c] = c * 32 + lane == newest ? 0xFFFFFFFFU : block[c];
  }
  const uint32_t limit = threshold(block, p.blocks);
  unsigned above = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    above += block[c] > limit ? 1 : 0;
  }
  int left = p.blocks - static_cast<int>(__reduce_add_sync(kFull, above));
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const bool equal = block[c] == limit && limit != 0;
    const int before = lanes_before(equal ? 1 : 0, lane);
    const bool keep = block[c] > limit || (equal && before < left);
    left -= static_cast<int>(__popc(__ballot_sync(kFull, equal)));
    if ((c * 32 + lane) * 8 < p.entries) {
      p.new_pool[token * (p.entries / 8) + c * 32 + lane] = keep ? 0xFF : 0;
    }
  }
}

template <int kChunks>
__global__ void __launch_bounds__(kThreads) select_kernel(IndexSelect p) {
  const int lane = threadIdx.x % 32;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (token >= p.tokens) {
    return;
  }
  const int visible = (static_cast<int>(token % p.length) + 1) / p.ratio;
  const int64_t bytes = p.entries / 8;
  uint32_t key[kChunks * 8];
  float score[8];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int at = c * 256 + lane * 8;
    const bool there =
        at < visible && (p.pool == nullptr || p.pool[token * bytes + c * 32 + lane] != 0);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      score[e] = 0;
    }
    for (int h = 0; there && h < p.heads; ++h) {
      float dot[8];
      load8(p.dots + (token * p.heads + h) * p.entries + at, dot);
      const float w = p.weights[token * p.heads + h];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        score[e] += w * fmaxf(dot[e], 0.0F);
      }
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      key[c * 8 + e] = there && at + e < visible ? order_key(score[e]) : 0;
    }
  }
  if (p.new_pool != nullptr) {
    keep_pool<kChunks>(p, key, token, visible);
  }
  const uint32_t limit = threshold(key, p.top);
  unsigned above = 0;
#pragma unroll
  for (int i = 0; i < kChunks * 8; ++i) {
    above += key[i] > limit ? 1 : 0;
  }
  int left = p.top - static_cast<int>(__reduce_add_sync(kFull, above));
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    int equal = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      equal += key[c * 8 + e] == limit && limit != 0 ? 1 : 0;
    }
    int mine = left - lanes_before(equal, lane);
    left -= static_cast<int>(__reduce_add_sync(kFull, static_cast<unsigned>(equal)));
    uint32_t bits = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const uint32_t k = key[c * 8 + e];
      const bool tie = k == limit && limit != 0;
      bits |= (k > limit || (tie && mine > 0)) ? 1U << e : 0;
      mine -= tie ? 1 : 0;
    }
    if (c * 32 + lane < bytes) {
      p.selected[token * bytes + c * 32 + lane] = static_cast<uint8_t>(bits);
    }
  }
}

}  // namespace

#define FATHOM_BY_CHUNKS(entries, call) \
  if ((entries) <= 256) {               \
    constexpr int kChunks = 1;          \
    call;                               \
  } else if ((entries) <= 512) {        \
    constexpr int kChunks = 2;          \
    call;                               \
  } else if ((entries) <= 1024) {       \
    constexpr int kChunks = 4;          \
    call;                               \
  } else if ((entries) <= 2048) {       \
    constexpr int kChunks = 8;          \
    call;                               \
  } else {                              \
    constexpr int kChunks = 16;         \
    call;                               \
  }

void attend_softmax(const Attend& p, Bf16* sw, Bf16* sg, float* lse, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  const int grid = full_grid(p.tokens * p.heads, kWarps);
  FATHOM_BY_CHUNKS(p.entries, (softmax_kernel<kChunks><<<grid, kThreads, 0, s>>>(p, sw, sg, lse)));
  check_launch("attend_softmax");
}

void attend_softmax_bwd(const Attend& p, const AttendGrad& g, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  softmax_grad_kernel<<<full_grid(p.tokens * p.heads, kWarps), kThreads, 0, s>>>(p, g);
  check_launch("attend_softmax_bwd");
}

void index_select(const IndexSelect& p, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  const int grid = full_grid(p.tokens, kWarps);
  FATHOM_BY_CHUNKS(p.entries, (select_kernel<kChunks><<<grid, kThreads, 0, s>>>(p)));
  check_launch("index_select");
}

}  // namespace fathom::train::gpu
