#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/product.h"

// The product of rows by their bf16 values with a weight that is streamed once: the tree of
// product.cu, the same bits. A block has kOutputs outputs, four threads each; a thread holds four
// of the sixteen virtual lanes. Pieces of kPiece elements of every output's row, and of the rows of
// x, go through a ring in shared memory; those of the weight are asked for before the inputs are
// there.

#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace fathom::cuda {
namespace {

constexpr int kPiece = 256;
constexpr int kBlocks = kPiece / 32;  // steps of the tree in a piece
constexpr int kMostRows = 8;

struct Four {
  float v[4];
};

__device__ inline Four from_bf16(uint2 w) {
  return {__uint_as_float(w.x << 16), __uint_as_float(w.x & 0xffff0000u),
          __uint_as_float(w.y << 16), __uint_as_float(w.y & 0xffff0000u)};
}

__device__ inline float2 halves_of(uint32_t codes) {
  const __half2_raw h =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes & 0xffffu), __NV_E4M3);
  return __half22float2(__half2(h));
}

// How four neighbouring weights lie, and what scales them.
struct Bf16Form {
  static constexpr int kBytes = 2;
  static constexpr bool kScaled = false;
  static __device__ Four four(const uint8_t* at) {
    return from_bf16(*reinterpret_cast<const uint2*>(at));
  }
};
struct Fp8Form {
  static constexpr int kBytes = 1;
  static constexpr bool kScaled = true;
  static __device__ Four four(const uint8_t* at) {
    const uint32_t codes = *reinterpret_cast<const uint32_t*>(at);
    const float2 low = halves_of(codes);
    const float2 high = halves_of(codes >> 16);
    return {low.x, low.y, high.x, high.y};
  }
};

template <class W, int kOutputs_, int kRows_, int kStages_>
struct Shape {
  static constexpr int kOutputs = kOutputs_;
  static constexpr int kRows = kRows_;
  static constexpr int kStages = kStages_;
  static constexpr int kThreads = 4 * kOutputs;
  static constexpr int kRowBytes = kPiece * W::kBytes;
  // Eight outputs of a warp lie in different banks.
  static constexpr int kPitch = kRowBytes + 16 * W::kBytes;
  static constexpr int kWeightBytes = kOutputs * kPitch;
  static constexpr int kXBytes = kRows * kPiece * 2;
  static constexpr int kStageBytes = kWeightBytes + kXBytes;
  static constexpr size_t kBytes = static_cast<size_t>(kStages) * kStageBytes;
};

// Where a block works.
struct Tile {
  int64_t out;        // first output
  int outputs;        // of it that exist
  int64_t row;        // first row
  int rows;           // that exist
  int64_t x_element;  // of a row of x where the group begins
};

template <class W, class S>
__device__ void fetch_weights(const ProductArgs& a, const Tile& tile, int64_t piece,
                              uint8_t* stage) {
  constexpr int kParts = S::kRowBytes / 16;
  const auto* from = static_cast<const uint8_t*>(a.w.one.data) + piece * S::kRowBytes;
#pragma unroll
  for (int i = 0; i < S::kOutputs * kParts / S::kThreads; ++i) {
    const int at = i * S::kThreads + static_cast<int>(threadIdx.x);
    const int o = at / kParts;
    const bool there = o < tile.outputs;
    ptx::copy16(ptx::shared_address(stage + o * S::kPitch + at % kParts * 16),
                from + (tile.out + (there ? o : 0)) * a.w.data_stride + at % kParts * 16, there);
  }
}

template <class S>
__device__ void fetch_rows(const ProductArgs& a, const Tile& tile, int64_t piece, uint8_t* stage) {
  constexpr int kParts = kPiece * 2 / 16;
  for (int at = static_cast<int>(threadIdx.x); at < S::kRows * kParts; at += S::kThreads) {
    const int r = at / kParts;
    const bool there = r < tile.rows;
    const uint16_t* from = a.x.bf16 + (tile.row + (there ? r : 0)) * a.x.bf16_stride +
                           tile.x_element + piece * kPiece + at % kParts * 8;
    ptx::copy16(ptx::shared_address(stage + S::kWeightBytes + at * 16), from, there);
  }
}

// A block's scale is a power of two: taken behind the pair it gives the bits that it gives in
// front, but where a product of the two is below 2^-126.
template <class W>
__device__ inline float added(float acc, float2 x, float2 w, float scale) {
  const float pair = __fmaf_rn(x.y, w.y, x.x * w.x);
  return W::kScaled ? __fmaf_rn(pair, scale, acc) : acc + pair;
}

template <class W, class S>
__device__ void add_piece(const uint8_t* stage, uint2 scales, float (&acc)[S::kRows][4]) {
  const int t = static_cast<int>(threadIdx.x) % 4;
  const int o = static_cast<int>(threadIdx.x) / 4;
  const uint8_t* w = stage + o * S::kPitch + t * 4 * W::kBytes;
  const uint8_t* x = stage + S::kWeightBytes + t * 8;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    float scale = 1.0f;
    if constexpr (W::kScaled) {
      const uint32_t word = b < 4 ? scales.x : scales.y;
      scale = e8m0_to_float(static_cast<uint8_t>(word >> (8 * (b % 4))));
    }
    const Four low = W::four(w + b * 32 * W::kBytes);
    const Four high = W::four(w + (b * 32 + 16) * W::kBytes);
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      const uint8_t* row = x + r * kPiece * 2 + b * 64;
      const Four x_low = from_bf16(*reinterpret_cast<const uint2*>(row));
      const Four x_high = from_bf16(*reinterpret_cast<const uint2*>(row + 32));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        acc[r][i] = added<W>(acc[r][i], {x_low.v[i], x_high.v[i]}, {low.v[i], high.v[i]}, scale);
      }
    }
  }
}

// Folds 8, 4, 2, 1: lanes 4 t .. 4 t + 3 are thread t's. The sum is thread 0's.
__device__ float fold_four(float (&acc)[4]) {
#pragma unroll
  for (int from = 2; from > 0; --from) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      acc[i] = acc[i] + __shfl_down_sync(kFullWarp, acc[i], static_cast<unsigned>(from), 4);
    }
  }
  acc[0] = acc[0] + acc[2];
  acc[1] = acc[1] + acc[3];
  return acc[0] + acc[1];
}

template <class W, class S>
__global__ void __launch_bounds__(S::kThreads) wide_kernel(const ProductArgs a) {
  extern __shared__ __align__(128) uint8_t ring[];
  ptx::launch_dependents();
  const int64_t group_out = a.n_out / a.groups;
  const int64_t tiles = (group_out + S::kOutputs - 1) / S::kOutputs;
  const int64_t group = blockIdx.x / tiles;
  const int64_t in_group = blockIdx.x % tiles * S::kOutputs;
  Tile tile;
  tile.out = group * group_out + in_group;
  tile.outputs = static_cast<int>(min(group_out - in_group, int64_t{S::kOutputs}));
  tile.row = int64_t{blockIdx.y} * S::kRows;
  tile.rows = static_cast<int>(min(a.n_rows - tile.row, int64_t{S::kRows}));
  tile.x_element = group * a.in;
  const int64_t n_pieces = a.in / kPiece;
  const int o = static_cast<int>(threadIdx.x) / 4;
  const int64_t out = tile.out + min(o, tile.outputs - 1);

  const auto stage_of = [&](int64_t piece) { return ring + piece % S::kStages * S::kStageBytes; };
  for (int64_t piece = 0; piece < S::kStages - 1 && piece < n_pieces; ++piece) {
    fetch_weights<W, S>(a, tile, piece, stage_of(piece));
  }
  const uint8_t* scale_row = W::kScaled ? a.w.one.scale + out / 32 * a.w.scale_stride : nullptr;
  const auto scales_of = [&](int64_t piece) {
    if (!W::kScaled || piece >= n_pieces) return uint2{};
    return *reinterpret_cast<const uint2*>(scale_row + piece * kBlocks);
  };
  uint2 scales = scales_of(0);
  ptx::wait_for_inputs();
  for (int64_t piece = 0; piece < S::kStages - 1; ++piece) {
    if (piece < n_pieces) fetch_rows<S>(a, tile, piece, stage_of(piece));
    ptx::copy_commit();
  }
  float acc[S::kRows][4] = {};
  for (int64_t piece = 0; piece < n_pieces; ++piece) {
    ptx::copy_wait<S::kStages - 2>();
    __syncthreads();
    const int64_t next = piece + S::kStages - 1;
    if (next < n_pieces) {
      fetch_weights<W, S>(a, tile, next, stage_of(next));
      fetch_rows<S>(a, tile, next, stage_of(next));
    }
    ptx::copy_commit();
    const uint2 later = scales_of(piece + 1);
    add_piece<W, S>(stage_of(piece), scales, acc);
    scales = later;
  }
#pragma unroll
  for (int r = 0; r < S::kRows; ++r) {
    const float sum = fold_four(acc[r]);
    if (threadIdx.x % 4 != 0 || o >= tile.outputs || r >= tile.rows) continue;
    const int64_t at = (tile.row + r) * a.out_stride + out;
    if (a.out_bf16 != nullptr) {
      a.out_bf16[at] = float_to_bf16(sum);
    } else {
      a.out[at] = sum;
    }
  }
}

// Few outputs and few rows: a block an output of a row; all threads make the products of pairs,
// whose sums 16 lanes add.
constexpr int kNarrowThreads = 256;
constexpr int kNarrowTurns = 4;  // quads of pairs a thread has at most
__global__ void __launch_bounds__(kNarrowThreads) narrow_kernel(const ProductArgs a) {
  extern __shared__ __align__(16) float products[];
  const int64_t o = blockIdx.x;
  const int64_t row = blockIdx.y;
  const int64_t quads = a.in / 8;
  const auto place = [](int64_t q) { return q / 4 * 32 + q % 4 * 4; };
  const auto* w = reinterpret_cast<const uint16_t*>(static_cast<const uint8_t*>(a.w.one.data) +
                                                    o * a.w.data_stride);
  const uint16_t* x = a.x.bf16 + row * a.x.bf16_stride;
  ptx::launch_dependents();
  uint2 low[kNarrowTurns];
  uint2 high[kNarrowTurns];
#pragma unroll
  for (int i = 0; i < kNarrowTurns; ++i) {
    const int64_t q = i * kNarrowThreads + threadIdx.x;
    if (q >= quads) break;
    low[i] = *reinterpret_cast<const uint2*>(w + place(q));
    high[i] = *reinterpret_cast<const uint2*>(w + place(q) + 16);
  }
  ptx::wait_for_inputs();
#pragma unroll
  for (int i = 0; i < kNarrowTurns; ++i) {
    const int64_t q = i * kNarrowThreads + threadIdx.x;
    if (q >= quads) break;
    const Four x_low = from_bf16(*reinterpret_cast<const uint2*>(x + place(q)));
    const Four x_high = from_bf16(*reinterpret_cast<const uint2*>(x + place(q) + 16));
    const Four w_low = from_bf16(low[i]);
    const Four w_high = from_bf16(high[i]);
    float pair[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      pair[j] = __fmaf_rn(x_high.v[j], w_high.v[j], x_low.v[j] * w_low.v[j]);
    }
    *reinterpret_cast<float4*>(products + 4 * q) = {pair[0], pair[1], pair[2], pair[3]};
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const float* at = products + threadIdx.x % 16;
  float acc = 0;
#pragma unroll 16
  for (int64_t b = 0; b < a.in / 32; ++b) acc = acc + at[b * 16];
  acc = fold_lanes(acc);
  if (threadIdx.x != 0) return;
  if (a.out_bf16 != nullptr) {
    a.out_bf16[row * a.out_stride + o] = float_to_bf16(acc);
  } else {
    a.out[row * a.out_stride + o] = acc;
  }
}

constexpr int64_t kNarrowOutputs = 1024;
constexpr int64_t kNarrowRows = 8;
constexpr int64_t kNarrowProducts = 4096;  // outputs of all rows, where there are more rows
bool narrow(const ProductArgs& a) {
  return a.w.format == WeightFormat::kBf16 && a.groups == 1 && a.n_out <= kNarrowOutputs &&
         (a.n_rows <= kNarrowRows || a.n_out * a.n_rows <= kNarrowProducts) &&
         a.in <= int64_t{8} * kNarrowTurns * kNarrowThreads;
}
void launch_narrow(const ProductArgs& a, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(a.n_out), static_cast<unsigned>(a.n_rows));
  const auto bytes = static_cast<size_t>(a.in / 2) * sizeof(float);
  launch_dependent(narrow_kernel, {grid, kNarrowThreads, bytes}, a, stream);
}

template <class W, int kOutputs, int kRows, int kStages>
void launch(const ProductArgs& a, cudaStream_t stream) {
  using S = Shape<W, kOutputs, kRows, kStages>;
  const int64_t group_out = a.n_out / a.groups;
  const int64_t tiles = (group_out + kOutputs - 1) / kOutputs * a.groups;
  cudaFuncSetAttribute(wide_kernel<W, S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(S::kBytes));
  const dim3 grid(static_cast<unsigned>(tiles),
                  static_cast<unsigned>((a.n_rows + kRows - 1) / kRows));
  launch_dependent(wide_kernel<W, S>, {grid, S::kThreads, S::kBytes}, a, stream);
}

template <class W, int kOutputs, int kStages>
void launch_rows(const ProductArgs& a, cudaStream_t stream) {
  if (a.n_rows == 1) return launch<W, kOutputs, 1, kStages>(a, stream);
  if (a.n_rows <= 4) return launch<W, kOutputs, 4, kStages>(a, stream);
  launch<W, kOutputs, kMostRows, kStages>(a, stream);
}

// Outputs of a block: many where there are enough of them for all processors.
template <class W>
void launch_outputs(const ProductArgs& a, cudaStream_t stream) {
  if (a.n_out >= 32768) return launch_rows<W, 64, 4>(a, stream);
  if (a.n_out >= 4096) return launch_rows<W, 32, 5>(a, stream);
  launch_rows<W, 8, 8>(a, stream);
}

bool aligned16(const void* p, int64_t stride_bytes) {
  return (reinterpret_cast<uintptr_t>(p) | static_cast<uintptr_t>(stride_bytes)) % 16 == 0;
}

}  // namespace

bool launch_wide_product(const ProductArgs& a, cudaStream_t stream) {
  const bool plain = a.tiles == nullptr && a.x_rows == nullptr && a.w.table == nullptr &&
                     a.planes == 1 && a.in % kPiece == 0 && a.n_rows > 0 && a.n_out > 0;
  if (!plain || !aligned16(a.x.bf16, a.x.bf16_stride * 2)) return false;
  if (!aligned16(a.w.one.data, a.w.data_stride)) return false;
  if (narrow(a)) {
    launch_narrow(a, stream);
    return true;
  }
  if (a.w.format == WeightFormat::kBf16) {
    launch_outputs<Bf16Form>(a, stream);
    return true;
  }
  const bool scales =
      (reinterpret_cast<uintptr_t>(a.w.one.scale) | static_cast<uintptr_t>(a.w.scale_stride)) % 8 ==
      0;
  if (a.w.format != WeightFormat::kFp8Block32 || !a.x.as_bf16 || !scales) return false;
  launch_outputs<Fp8Form>(a, stream);
  return true;
}

}  // namespace fathom::cuda
