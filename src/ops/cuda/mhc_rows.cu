#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/mhc.h"
#include "ops/cuda/numbers.cuh"

// mHC of four streams with what follows it in one pass over a row: the operations and the trees of
// mhc.cu and of the norm, the same bits. Sums that a tree adds one after the other are added by 16
// lanes from products that all threads made.

namespace fathom::cuda {
namespace {

constexpr int kStreams = 4;
constexpr int kMix = (2 + kStreams) * kStreams;
constexpr int kEach = 8;  // channels of a thread
constexpr int kPredictThreads = 256;

struct Eight {
  float v[kEach];
};

__device__ inline Eight widen(uint4 w) {
  const uint32_t words[4] = {w.x, w.y, w.z, w.w};
  Eight out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out.v[2 * i] = __uint_as_float(words[i] << 16);
    out.v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
  return out;
}
__device__ inline uint4 narrow(const Eight& x) {
  return {fast::narrow2(x.v[0], x.v[1]), fast::narrow2(x.v[2], x.v[3]),
          fast::narrow2(x.v[4], x.v[5]), fast::narrow2(x.v[6], x.v[7])};
}

// What a thread reads of a row, all of it asked for before any of it is used.
struct RowInputs {
  uint4 x[kStreams];
  uint4 y;
  float4 comb[kStreams];  // [j]: by destination
  float4 post;
  float4 pre;
};
__device__ RowInputs load_row(const MhcArgs& a, int64_t row, int64_t d) {
  RowInputs in = {};
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
    in.x[s] = *reinterpret_cast<const uint4*>(a.residual + (row * kStreams + s) * a.hidden + d);
  }
  if (a.y != nullptr) {
    in.y = *reinterpret_cast<const uint4*>(a.y + row * a.hidden + d);
    const auto* comb = reinterpret_cast<const float4*>(a.comb) + row * kStreams;
#pragma unroll
    for (int j = 0; j < kStreams; ++j) in.comb[j] = comb[j];
    in.post = reinterpret_cast<const float4*>(a.post)[row];
  }
  if (a.norm != nullptr) in.pre = reinterpret_cast<const float4*>(a.pre)[row];
  return in;
}

__device__ inline float part(const float4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// X[k] = bf(post_k y + sum_j comb[j][k] X[j])
__device__ void expand(const MhcArgs& a, const RowInputs& in, int64_t row, int64_t d,
                       Eight (&x)[kStreams]) {
  const Eight y = widen(in.y);
  uint4 out[kStreams];
#pragma unroll
  for (int k = 0; k < kStreams; ++k) {
    Eight mixed;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float sum = part(in.comb[0], k) * x[0].v[i];
#pragma unroll
      for (int j = 1; j < kStreams; ++j) sum += part(in.comb[j], k) * x[j].v[i];
      mixed.v[i] = part(in.post, k) * y.v[i] + sum;
    }
    out[k] = narrow(mixed);
  }
#pragma unroll
  for (int k = 0; k < kStreams; ++k) {
    x[k] = widen(out[k]);
    *reinterpret_cast<uint4*>(a.residual + (row * kStreams + k) * a.hidden + d) = out[k];
  }
}

// The sum that 16 lanes walk: products of blocks in order, [block][lane]; called by a warp.
__device__ float walk(const float* products, int64_t n_blocks) {
  const float* at = products + threadIdx.x % 16;
  float acc = 0;
#pragma unroll 16
  for (int64_t b = 0; b < n_blocks; ++b) acc = acc + at[b * 16];
  return fold_lanes(acc);
}

// u[k + 16] u[k + 16] fused onto u[k] u[k], for all pairs of the row.
__device__ void square_pairs(const float* u, int64_t width, float* products) {
  for (int64_t i = threadIdx.x; i < width / 2; i += blockDim.x) {
    const int64_t k = i / 16 * 32 + i % 16;
    products[i] = __fmaf_rn(u[k + 16], u[k + 16], u[k] * u[k]);
  }
}

// y = RMSNorm(u; weight) with A8, this thread's eight channels; four threads have a block of A8.
__device__ void write_normed(const MhcArgs& a, const Eight& u, const Eight& w, float r) {
  const int64_t row = blockIdx.x;
  const int64_t d = int64_t{threadIdx.x} * kEach;
  Eight y;
  uint32_t top = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) y.v[i] = w.v[i] * (u.v[i] * r);
  const uint4 rounded = narrow(y);
  y = widen(rounded);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const uint32_t magnitude = finite_magnitude(y.v[i]);
    top = magnitude > top ? magnitude : top;
  }
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    const uint32_t other = __shfl_xor_sync(kFullWarp, top, step);
    top = other > top ? other : top;
  }
  float amax = __uint_as_float(top);
  amax = amax < 1e-4f ? 1e-4f : amax;
  const float scale = power_of_two_ceil(amax * __uint_as_float(0x3B124925u));
  const float inverse = __fdiv_rn(1.0f, scale);
  *reinterpret_cast<uint4*>(a.x + row * a.x_stride + d) = rounded;
  *reinterpret_cast<uint2*>(a.codes + row * a.code_stride + d) = {
      fast::e4m3x4(y.v[0] * inverse, y.v[1] * inverse, y.v[2] * inverse, y.v[3] * inverse),
      fast::e4m3x4(y.v[4] * inverse, y.v[5] * inverse, y.v[6] * inverse, y.v[7] * inverse)};
  if (d % 32 == 0) a.scales[row * a.scale_stride + d / 32] = power_of_two_to_e8m0(scale);
}

// Grid: a row each; a thread has eight channels of all streams.
constexpr int kMostThreads = 640;
__global__ void __launch_bounds__(kMostThreads) rows_kernel(const MhcArgs a) {
  extern __shared__ float memory[];
  __shared__ float shared_r;
  float* u = memory;               // [hidden]
  float* products = u + a.hidden;  // [hidden / 2]
  const int64_t row = blockIdx.x;
  const int64_t d = int64_t{threadIdx.x} * kEach;
  ptx::launch_dependents();
  const bool normed = a.norm != nullptr;
  const uint4 weight = normed ? *reinterpret_cast<const uint4*>(a.norm + d) : uint4{};
  ptx::wait_for_inputs();
  const RowInputs in = load_row(a, row, d);
  Eight x[kStreams];
#pragma unroll
  for (int s = 0; s < kStreams; ++s) x[s] = widen(in.x[s]);
  if (a.y != nullptr) expand(a, in, row, d, x);
  if (!normed) return;
  Eight collapsed;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    float sum = in.pre.x * x[0].v[i];
#pragma unroll
    for (int s = 1; s < kStreams; ++s) sum += part(in.pre, s) * x[s].v[i];
    collapsed.v[i] = sum;
  }
  const Eight mine = widen(narrow(collapsed));
  *reinterpret_cast<float4*>(u + d) = {mine.v[0], mine.v[1], mine.v[2], mine.v[3]};
  *reinterpret_cast<float4*>(u + d + 4) = {mine.v[4], mine.v[5], mine.v[6], mine.v[7]};
  __syncthreads();
  square_pairs(u, a.hidden, products);
  __syncthreads();
  if (threadIdx.x < 32) {
    const float mean = __fdiv_rn(walk(products, a.hidden / 32), static_cast<float>(a.hidden));
    if (threadIdx.x == 0) shared_r = inverse_root(mean + a.norm_eps);
  }
  __syncthreads();
  write_normed(a, mine, widen(weight), shared_r);
}

// Grid: an output of a row each; the last is the sum of squares. Four pairs a thread and turn.
constexpr int kTurns = 10;
__global__ void __launch_bounds__(kPredictThreads) predict_parts_kernel(const MhcArgs a) {
  extern __shared__ float products[];
  const int64_t width = kStreams * a.hidden;
  const int o = blockIdx.x;
  const int64_t row = blockIdx.y;
  const bool squares = o == kMix;
  const int64_t quads = width / 8;
  const auto place = [](int64_t q) { return q / 4 * 32 + q % 4 * 4; };
  ptx::launch_dependents();
  float4 low[kTurns];
  float4 high[kTurns];
  if (!squares) {
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int64_t q = i * kPredictThreads + threadIdx.x;
      if (q >= quads) break;
      const float* fn = a.fn + o * width + place(q);
      low[i] = *reinterpret_cast<const float4*>(fn);
      high[i] = *reinterpret_cast<const float4*>(fn + 16);
    }
  }
  ptx::wait_for_inputs();
  const uint16_t* residual = a.residual + row * width;
  const auto four = [&](int64_t k) {
    const uint2 w = *reinterpret_cast<const uint2*>(residual + k);
    return float4{__uint_as_float(w.x << 16), __uint_as_float(w.x & 0xffff0000u),
                  __uint_as_float(w.y << 16), __uint_as_float(w.y & 0xffff0000u)};
  };
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int64_t q = i * kPredictThreads + threadIdx.x;
    if (q >= quads) break;
    const float4 x = four(place(q));
    const float4 y = four(place(q) + 16);
    const float4 v = squares ? x : low[i];
    const float4 w = squares ? y : high[i];
    *reinterpret_cast<float4*>(products + 4 * q) = {
        __fmaf_rn(y.x, w.x, x.x * v.x), __fmaf_rn(y.y, w.y, x.y * v.y),
        __fmaf_rn(y.z, w.z, x.z * v.z), __fmaf_rn(y.w, w.w, x.w * v.w)};
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const float sum = walk(products, width / 32);
  if (threadIdx.x == 0) a.sums[row * (kMix + 1) + o] = sum;
}

// Many rows: eight threads have two of the sixteen lanes each, of kTheirRows rows and kOutputs
// outputs, so that a weight is read once for several rows; each sum is the same chain. Grid: rows,
// groups of outputs.
constexpr int kTheirRows = 2;
constexpr int kManyThreads = 128;
constexpr int kRowsOfBlock = kManyThreads / 8 * kTheirRows;
template <int kOutputs, bool kSquares>
__global__ void __launch_bounds__(kManyThreads) predict_many_kernel(const MhcArgs a) {
  enter();
  const int64_t width = kStreams * a.hidden;
  const int lane = static_cast<int>(threadIdx.x) % 8;
  const int64_t first =
      int64_t{blockIdx.x} * kRowsOfBlock + static_cast<int>(threadIdx.x) / 8 * kTheirRows;
  const int o = static_cast<int>(blockIdx.y) * kOutputs;
  const uint16_t* rows[kTheirRows];
#pragma unroll
  for (int r = 0; r < kTheirRows; ++r) {
    rows[r] = a.residual + min(first + r, a.n_rows - 1) * width + 2 * lane;
  }
  const float* weights = a.fn + o * width + 2 * lane;
  float2 acc[kTheirRows][kOutputs] = {};
#pragma unroll 2
  for (int64_t k = 0; k < width; k += 32) {
    float2 x[kTheirRows][2];
#pragma unroll
    for (int r = 0; r < kTheirRows; ++r) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const uint32_t two = *reinterpret_cast<const uint32_t*>(rows[r] + k + 16 * side);
        x[r][side] = {__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u)};
      }
    }
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      float2 low = {};
      float2 high = {};
      if constexpr (!kSquares) {
        low = *reinterpret_cast<const float2*>(weights + i * width + k);
        high = *reinterpret_cast<const float2*>(weights + i * width + k + 16);
      }
#pragma unroll
      for (int r = 0; r < kTheirRows; ++r) {
        const float2 v = kSquares ? x[r][0] : low;
        const float2 w = kSquares ? x[r][1] : high;
        acc[r][i].x = acc[r][i].x + __fmaf_rn(x[r][1].x, w.x, x[r][0].x * v.x);
        acc[r][i].y = acc[r][i].y + __fmaf_rn(x[r][1].y, w.y, x[r][0].y * v.y);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kTheirRows; ++r) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      float2 sum = acc[r][i];
      for (int fold = 4; fold > 0; fold /= 2) {
        sum.x = sum.x + __shfl_down_sync(kFullWarp, sum.x, fold, 8);
        sum.y = sum.y + __shfl_down_sync(kFullWarp, sum.y, fold, 8);
      }
      if (lane != 0 || first + r >= a.n_rows) continue;
      a.sums[(first + r) * (kMix + 1) + (kSquares ? kMix : o + i)] = sum.x + sum.y;
    }
  }
}

constexpr int64_t kManyRows = 64;
constexpr int kManyOutputs = 6;
static_assert(kMix % kManyOutputs == 0);
void launch_predict_many(const MhcArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((args.n_rows + kRowsOfBlock - 1) / kRowsOfBlock);
  launch_dependent(predict_many_kernel<kManyOutputs, false>,
                   {dim3(blocks, kMix / kManyOutputs), kManyThreads, 0, true}, args, stream);
  launch_dependent(predict_many_kernel<1, true>, {blocks, kManyThreads}, args, stream);
}

// comb of a row: lane 4 j + k holds [j][k]. Lines are added in order.
__device__ float line_sum(float value, bool columns) {
  const int lane = static_cast<int>(threadIdx.x);
  const int first = columns ? lane % 4 : lane & 28;
  const int step = columns ? 4 : 1;
  float sum = __shfl_sync(kFullWarp, value, first);
#pragma unroll
  for (int i = 1; i < kStreams; ++i) sum += __shfl_sync(kFullWarp, value, first + i * step);
  return sum;
}

// Grid: a row each, one warp.
__global__ void __launch_bounds__(32) finish_kernel(const MhcArgs a) {
  enter();
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  const float* sums = a.sums + row * (kMix + 1);
  const float mean = __fdiv_rn(sums[kMix], static_cast<float>(kStreams * a.hidden));
  const float r = inverse_root(mean + a.norm_eps);
  if (lane < kStreams) {
    const float pre = sums[lane] * r;
    const float post = sums[kStreams + lane] * r;
    a.new_pre[row * kStreams + lane] = sigmoid(pre * a.scale[0] + a.base[lane]) + a.hc_eps;
    a.new_post[row * kStreams + lane] = 2.0f * sigmoid(post * a.scale[1] + a.base[kStreams + lane]);
  }
  const int at = 2 * kStreams + lane % 16;
  float c = sums[at] * r * a.scale[2] + a.base[at];
  float top = __shfl_sync(kFullWarp, c, lane & 28);
#pragma unroll
  for (int k = 1; k < kStreams; ++k) {
    const float other = __shfl_sync(kFullWarp, c, (lane & 28) + k);
    top = top < other ? other : top;
  }
  c = exp_f32(c - top);
  c = __fdiv_rn(c, line_sum(c, false)) + a.hc_eps;
  c = __fdiv_rn(c, line_sum(c, true) + a.hc_eps);
  for (int i = 1; i < a.iters; ++i) {
    c = __fdiv_rn(c, line_sum(c, false) + a.hc_eps);
    c = __fdiv_rn(c, line_sum(c, true) + a.hc_eps);
  }
  if (lane < 16) a.new_comb[row * 16 + lane] = c;
}

}  // namespace

bool mhc_rows_fit(const MhcArgs& a) {
  return a.n == kStreams && a.hidden % 256 == 0 && a.hidden <= kEach * kMostThreads &&
         kStreams * a.hidden <= int64_t{8} * kTurns * kPredictThreads;
}

void launch_mhc_rows(const MhcArgs& args, cudaStream_t stream) {
  const auto bytes = static_cast<size_t>(args.hidden + args.hidden / 2) * sizeof(float);
  launch_dependent(rows_kernel,
                   {static_cast<unsigned>(args.n_rows), static_cast<unsigned>(args.hidden / kEach),
                    bytes, args.plain_edge},
                   args, stream);
}

void launch_mhc_coefficients_of(const MhcArgs& args, cudaStream_t stream) {
  const auto bytes = static_cast<size_t>(kStreams * args.hidden / 2) * sizeof(float);
  const dim3 grid(kMix + 1, static_cast<unsigned>(args.n_rows));
  if (args.many && args.n_rows >= kManyRows) {
    launch_predict_many(args, stream);
  } else {
    launch_dependent(predict_parts_kernel, {grid, kPredictThreads, bytes, true}, args, stream);
  }
  launch_dependent(finish_kernel, {static_cast<unsigned>(args.n_rows), 32}, args, stream);
}

}  // namespace fathom::cuda
