#include "ops/cuda/product.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kHalfWarps = kThreads / 16;
constexpr int kOutsEach = 2;  // outputs of a half-warp
constexpr int kOutTile = kHalfWarps * kOutsEach;
constexpr int kBlocks = 16;  // of 32 elements, staged at a time

// ---- elements j and j + 16 of block b of a row; 0 beyond `in` ----

struct A8Source {
  const uint8_t* codes;
  const uint8_t* scales;
  __device__ A8Source(const ProductRows& x, int64_t row, int64_t group_at)
      : codes(x.codes + row * x.code_stride + group_at),
        scales(x.scales + row * x.scale_stride + group_at / 32) {}
  __device__ float2 pair(int64_t b, int j, int64_t in) const {
    const int64_t k = b * 32 + j;
    const float scale = e8m0_to_float(scales[b]);
    return {k < in ? e4m3_to_float(codes[k]) * scale : 0.0f,
            k + 16 < in ? e4m3_to_float(codes[k + 16]) * scale : 0.0f};
  }
};

struct Bf16Source {
  const uint16_t* values;
  __device__ Bf16Source(const ProductRows& x, int64_t row, int64_t group_at)
      : values(x.bf16 + row * x.bf16_stride + group_at) {}
  __device__ float2 pair(int64_t b, int j, int64_t in) const {
    const int64_t k = b * 32 + j;
    return {k < in ? bf16_to_float(values[k]) : 0.0f,
            k + 16 < in ? bf16_to_float(values[k + 16]) : 0.0f};
  }
};

struct Fp8Weight {
  const uint8_t* codes;
  const uint8_t* scales;
  __device__ Fp8Weight(const ProductWeight& w, const WeightPointers& at, int64_t o)
      : codes(static_cast<const uint8_t*>(at.data) + o * w.data_stride),
        scales(at.scale + o / 32 * w.scale_stride) {}
  __device__ float2 pair(int64_t b, int j, int64_t in) const {
    const int64_t k = b * 32 + j;
    const float scale = e8m0_to_float(scales[b]);
    return {k < in ? e4m3_to_float(codes[k]) * scale : 0.0f,
            k + 16 < in ? e4m3_to_float(codes[k + 16]) * scale : 0.0f};
  }
};

struct Fp4Weight {
  const uint8_t* codes;
  const uint8_t* scales;
  __device__ Fp4Weight(const ProductWeight& w, const WeightPointers& at, int64_t o)
      : codes(static_cast<const uint8_t*>(at.data) + o * w.data_stride),
        scales(at.scale + o * w.scale_stride) {}
  __device__ float2 pair(int64_t b, int j, int64_t) const {
    const float scale = e8m0_to_float(scales[b]);
    const int shift = j % 2 * 4;
    return {decode_e2m1(codes[b * 16 + j / 2] >> shift) * scale,
            decode_e2m1(codes[b * 16 + 8 + j / 2] >> shift) * scale};
  }
};

struct Bf16Weight {
  const uint16_t* values;
  __device__ Bf16Weight(const ProductWeight& w, const WeightPointers& at, int64_t o)
      : values(reinterpret_cast<const uint16_t*>(static_cast<const uint8_t*>(at.data) +
                                                 o * w.data_stride)) {}
  __device__ float2 pair(int64_t b, int j, int64_t in) const {
    const int64_t k = b * 32 + j;
    return {k < in ? bf16_to_float(values[k]) : 0.0f,
            k + 16 < in ? bf16_to_float(values[k + 16]) : 0.0f};
  }
};

struct F32Weight {
  const float* values;
  __device__ F32Weight(const ProductWeight& w, const WeightPointers& at, int64_t o)
      : values(reinterpret_cast<const float*>(static_cast<const uint8_t*>(at.data) +
                                              o * w.data_stride)) {}
  __device__ float2 pair(int64_t b, int j, int64_t in) const {
    const int64_t k = b * 32 + j;
    return {k < in ? values[k] : 0.0f, k + 16 < in ? values[k + 16] : 0.0f};
  }
};

// ---- the product ----

__device__ int64_t x_row(const ProductArgs& a, int64_t row) {
  return a.x_rows != nullptr ? a.x_rows[row] : row;
}

// Blocks [b0, b0 + n) of kRows rows, side by side for the 16 lanes.
template <class X, int kRows>
__device__ void stage(const ProductArgs& a, const RowTile& tile, int64_t group_at, int64_t b0,
                      float2 (*staged)[kBlocks][16]) {
  for (int i = threadIdx.x; i < kRows * kBlocks * 16; i += kThreads) {
    const int j = i % 16;
    const int b = i / 16 % kBlocks;
    const int r = i / 16 / kBlocks;
    const bool inside = tile.begin + r < tile.end && (b0 + b) * 32 < a.in;
    staged[r][b][j] = inside ? X(a.x, x_row(a, tile.begin + r), group_at).pair(b0 + b, j, a.in)
                             : float2{0.0f, 0.0f};
  }
}

template <int kRows>
__device__ void store(const ProductArgs& a, const RowTile& tile, int64_t o,
                      const float (&sums)[kRows]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (tile.begin + r >= tile.end) break;
    const int64_t at = blockIdx.z * a.plane_stride + (tile.begin + r) * a.out_stride + o;
    if (a.out_bf16 != nullptr) {
      a.out_bf16[at] = float_to_bf16(sums[r]);
    } else {
      a.out[at] = sums[r];
    }
  }
}

template <class X, class W, int kRows>
__global__ void __launch_bounds__(kThreads) product_kernel(const ProductArgs a) {
  enter();
  __shared__ float2 staged[kRows][kBlocks][16];
  const int j = threadIdx.x % 16;
  const int half_warp = threadIdx.x / 16;
  const int64_t group_out = a.n_out / a.groups;
  const int64_t tiles_of_group = (group_out + kOutTile - 1) / kOutTile;
  const int64_t group = blockIdx.x / tiles_of_group;
  const int64_t o_in_group = blockIdx.x % tiles_of_group * kOutTile;

  RowTile tile;
  WeightPointers weight = blockIdx.z == 0 ? a.w.one : a.w.other;
  if (a.tiles != nullptr) {
    tile = a.tiles[blockIdx.y];
    if (tile.begin == tile.end) return;
  } else {
    tile.begin = static_cast<int32_t>(blockIdx.y) * kRows;
    tile.end = static_cast<int32_t>(min(a.n_rows, int64_t{tile.begin} + kRows));
  }
  if (a.w.table != nullptr) {
    weight = a.w.table[tile.expert * a.w.matrices + a.w.first + blockIdx.z];
  }

  int64_t outs[kOutsEach];
  bool inside[kOutsEach];
  float acc[kOutsEach][kRows] = {};
#pragma unroll
  for (int i = 0; i < kOutsEach; ++i) {
    const int64_t o = o_in_group + half_warp + i * kHalfWarps;
    inside[i] = o < group_out;
    outs[i] = group * group_out + (inside[i] ? o : 0);
  }
  const int64_t n_blocks = (a.in + 31) / 32;
  for (int64_t b0 = 0; b0 < n_blocks; b0 += kBlocks) {
    __syncthreads();
    stage<X, kRows>(a, tile, group * a.in, b0, staged);
    __syncthreads();
    const int n = static_cast<int>(min(int64_t{kBlocks}, n_blocks - b0));
#pragma unroll 4
    for (int b = 0; b < n; ++b) {
      float2 w[kOutsEach];
#pragma unroll
      for (int i = 0; i < kOutsEach; ++i) w[i] = W(a.w, weight, outs[i]).pair(b0 + b, j, a.in);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float2 x = staged[r][b][j];
#pragma unroll
        for (int i = 0; i < kOutsEach; ++i) acc[i][r] = add_pair(acc[i][r], x, w[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kOutsEach; ++i) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) acc[i][r] = fold_lanes(acc[i][r]);
    if (j == 0 && inside[i]) store<kRows>(a, tile, outs[i], acc[i]);
  }
}

template <class X, class W, int kRows>
void launch(const ProductArgs& a, cudaStream_t stream) {
  const int64_t group_out = a.n_out / a.groups;
  const int64_t out_tiles = (group_out + kOutTile - 1) / kOutTile * a.groups;
  const int64_t row_tiles = a.tiles != nullptr ? a.max_tiles : (a.n_rows + kRows - 1) / kRows;
  const dim3 grid(static_cast<unsigned>(out_tiles), static_cast<unsigned>(row_tiles),
                  static_cast<unsigned>(a.planes));
  launch_dependent(product_kernel<X, W, kRows>, {grid, kThreads}, a, stream);
}

template <class X, class W>
void launch_rows(const ProductArgs& a, cudaStream_t stream) {
  if (a.tiles == nullptr && a.n_rows == 1) return launch<X, W, 1>(a, stream);
  if (a.tiles == nullptr && a.n_rows <= 4) return launch<X, W, 4>(a, stream);
  launch<X, W, kTileRows>(a, stream);
}

}  // namespace

void launch_product(const ProductArgs& a, cudaStream_t stream) {
  if (a.n_out == 0 || (a.tiles == nullptr ? a.n_rows : a.max_tiles) == 0) return;
  if (launch_wide_product(a, stream)) return;
  switch (a.w.format) {
    case WeightFormat::kBf16:
      return launch_rows<Bf16Source, Bf16Weight>(a, stream);
    case WeightFormat::kF32:
      return launch_rows<Bf16Source, F32Weight>(a, stream);
    case WeightFormat::kFp8Block32:
      if (a.x.as_bf16) return launch_rows<Bf16Source, Fp8Weight>(a, stream);
      return launch_rows<A8Source, Fp8Weight>(a, stream);
    case WeightFormat::kFp4Row32:
      if (a.x.as_bf16) return launch_rows<Bf16Source, Fp4Weight>(a, stream);
      return launch_rows<A8Source, Fp4Weight>(a, stream);
  }
}

ProductWeight product_weight(const Weight& w) {
  return {.format = w.format,
          .one = {w.data.data, static_cast<const uint8_t*>(w.scale.data)},
          .data_stride = w.data.stride[0] * dtype_bytes(w.data.dtype),
          .scale_stride = w.scale.empty() ? 0 : w.scale.stride[0]};
}

ProductRows product_rows(const Activation& x) {
  return {.bf16 = static_cast<const uint16_t*>(x.bf16.data),
          .codes = static_cast<const uint8_t*>(x.codes.data),
          .scales = static_cast<const uint8_t*>(x.scales.data),
          .bf16_stride = x.bf16.stride[0],
          .code_stride = x.codes.stride[0],
          .scale_stride = x.scales.stride[0]};
}

}  // namespace fathom::cuda
