#include "ops/cuda/value_product.h"

#include <algorithm>

#include "ops/cuda/decode_gemm.cuh"
#include "ops/cuda/launch.cuh"

namespace fathom::cuda {
namespace {

using decode::Cursor;

constexpr int kRows = 64;  // of a packed tile
constexpr int kUnit = 64;  // columns of a unit
constexpr int kRowBytes = 128;
constexpr int kProcessors = 132;

// Where chunk `chunk` of 16 bytes of a row lies.
__device__ inline int swizzled(int row, int chunk) {
  return row * kRowBytes + 16 * (chunk ^ (row & 7));
}

// ---- weights ----

// Eight E4M3 codes times 2^(scale - 127).
__device__ uint4 scaled_codes(uint2 codes, uint32_t scale) {
  const float factor = fast::power(scale);
  const auto two = [&](uint32_t pair) {
    const float2 v = fast::from_e4m3x2(pair & 0xFFFFU);
    return fast::narrow2(v.x * factor, v.y * factor);
  };
  return {two(codes.x), two(codes.x >> 16), two(codes.y), two(codes.y >> 16)};
}

constexpr int kPackThreads = 128;

// Grid: units of a tile, tiles. Two threads a row.
__global__ void __launch_bounds__(kPackThreads) pack_kernel(const PackValues w) {
  const int row = static_cast<int>(threadIdx.x) / 2;
  const size_t source = static_cast<size_t>(blockIdx.y) * kRows + row;
  uint8_t* unit =
      w.units + (static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x) * kValueUnitBytes;
  for (int i = 0; i < 4; ++i) {
    const int chunk = static_cast<int>(threadIdx.x) % 2 * 4 + i;
    const size_t column = static_cast<size_t>(blockIdx.x) * kUnit + 8 * chunk;
    uint4 v;
    if (w.values != nullptr) {
      v = *reinterpret_cast<const uint4*>(w.values + source * w.k + column);
    } else {
      const uint8_t scale = w.scales[source / 32 * (w.k / 32) + column / 32];
      v = scaled_codes(*reinterpret_cast<const uint2*>(w.codes + source * w.k + column), scale);
    }
    *reinterpret_cast<uint4*>(unit + swizzled(row, chunk)) = v;
  }
}

// ---- rows ----

constexpr int kStageThreads = 256;

// Pieces [m / kN][groups k / 64] of kN rows by 128 bytes; rows behind the last are zeros.
template <int kN>
__global__ void __launch_bounds__(kStageThreads) stage_kernel(const ValueProduct p) {
  enter();
  const int pieces = p.groups * (p.k / kUnit);
  const int64_t chunks = int64_t{(p.m + kN - 1) / kN} * kN * pieces * 8;
  for (int64_t i = int64_t{blockIdx.x} * kStageThreads + threadIdx.x; i < chunks;
       i += int64_t{gridDim.x} * kStageThreads) {
    const int chunk = static_cast<int>(i % (8 * pieces));
    const int row = static_cast<int>(i / (8 * pieces));
    uint4 v = {};
    if (row < p.m) v = *reinterpret_cast<const uint4*>(p.x + row * p.x_stride + 8 * chunk);
    const size_t piece = static_cast<size_t>(row / kN) * pieces + chunk / 8;
    *reinterpret_cast<uint4*>(p.pieces + piece * kN * kRowBytes + swizzled(row % kN, chunk % 8)) =
        v;
  }
}

// ---- product ----

// kN rows of x, as columns of the product, and kTiles packed tiles, a warpgroup each.
template <int kN_, int kTiles_, int kStages_>
struct Shape {
  static constexpr int kN = kN_;
  static constexpr int kTiles = kTiles_;
  static constexpr int kStages = kStages_;
  static constexpr int kThreads = 128 * kTiles + 32;
  static constexpr int kPieceBytes = kN * kRowBytes;
  static constexpr int kStageBytes = kPieceBytes + kTiles * kValueUnitBytes;
  static constexpr int kBarriersAt = kStages * kStageBytes;
  static constexpr int kBytes = kBarriersAt + 16 * kStages;
  static_assert(kPieceBytes % 1024 == 0 && kBytes <= 227 * 1024);
};

template <class S>
struct Ring {
  uint32_t base;
  __device__ explicit Ring(uint8_t* shared) : base(ptx::shared_address(shared)) {}
  __device__ uint32_t piece(int stage) const { return base + stage * S::kStageBytes; }
  __device__ uint32_t unit(int stage, int tile) const {
    return piece(stage) + S::kPieceBytes + tile * kValueUnitBytes;
  }
  __device__ uint32_t full(int stage) const { return base + S::kBarriersAt + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(S::kStages + stage); }
};

constexpr int kBand = 16;  // pieces of rows whose tiles follow each other

// The block's walk over pieces of rows and over packed tiles, kTiles at a time.
template <class S>
struct Walk {
  const ValueProduct& p;
  int item;
  int pieces;
  int sets;
  int units;  // of a tile
  __device__ explicit Walk(const ValueProduct& product)
      : p(product),
        item(static_cast<int>(blockIdx.x)),
        pieces((product.m + S::kN - 1) / S::kN),
        sets(product.n / kRows / S::kTiles),
        units(product.k / kUnit) {}
  __device__ bool more() const { return item < pieces * sets; }
  __device__ void next() { item += static_cast<int>(gridDim.x); }
  __device__ int height() const { return min(kBand, pieces - item / (kBand * sets) * kBand); }
  __device__ int piece() const {
    return item / (kBand * sets) * kBand + item % (kBand * sets) % height();
  }
  __device__ int tile() const { return item % (kBand * sets) / height() * S::kTiles; }
  __device__ const uint8_t* weights() const {
    return p.units + static_cast<size_t>(tile()) * units * kValueUnitBytes;
  }
  __device__ const uint8_t* rows() const {
    const int group = tile() / (p.n / kRows / p.groups);
    const size_t first = static_cast<size_t>(piece()) * p.groups * units + group * units;
    return p.pieces + first * S::kPieceBytes;
  }
};

template <class S>
__device__ void load_units(const Ring<S>& ring, const uint8_t* weights, int units, int u,
                           int stage) {
  ptx::barrier_expect(ring.full(stage), S::kStageBytes);
  for (int tile = 0; tile < S::kTiles; ++tile) {
    ptx::bulk_load(ring.unit(stage, tile),
                   weights + (static_cast<size_t>(tile) * units + u) * kValueUnitBytes,
                   kValueUnitBytes, ring.full(stage));
  }
}
template <class S>
__device__ void load_piece(const Ring<S>& ring, const uint8_t* rows, int u, int stage) {
  ptx::bulk_load(ring.piece(stage), rows + static_cast<size_t>(u) * S::kPieceBytes, S::kPieceBytes,
                 ring.full(stage));
}

// By one thread. The first units are fetched before the rows are there.
template <class S>
__device__ void produce(const ValueProduct& p, const Ring<S>& ring) {
  Walk<S> walk(p);
  const int early = walk.more() ? min(S::kStages, walk.units) : 0;
  for (int u = 0; u < early; ++u) load_units(ring, walk.weights(), walk.units, u, u);
  ptx::wait_for_inputs();
  for (int u = 0; u < early; ++u) load_piece(ring, walk.rows(), u, u);
  Cursor<S::kStages> at;
  for (bool first = true; walk.more(); walk.next(), first = false) {
    const uint8_t* weights = walk.weights();
    const uint8_t* rows = walk.rows();
    for (int u = 0; u < walk.units; ++u, at.next()) {
      if (first && u < early) continue;
      ptx::barrier_wait(ring.empty(at.stage), at.parity ^ 1);
      load_units(ring, weights, walk.units, u, at.stage);
      load_piece(ring, rows, u, at.stage);
    }
  }
}

// sum = the product over all units; a stage is given back one unit later, when the tensor cores
// have read it.
template <class S>
__device__ void multiply(int units, int tile, const Ring<S>& ring, Cursor<S::kStages>& at,
                         float (&sum)[S::kN / 2]) {
  const bool arrives = threadIdx.x % 32 == 0;
  int before = 0;
  for (int unit = 0; unit < units; ++unit, at.next()) {
    ptx::barrier_wait(ring.full(at.stage), at.parity);
    const uint64_t a = wgmma::descriptor(ring.unit(at.stage, tile));
    const uint64_t b = wgmma::descriptor(ring.piece(at.stage));
    wgmma::fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      wgmma::bf16<S::kN>(sum, a + 2 * i, b + 2 * i, unit != 0 || i != 0);
    }
    wgmma::commit();
    wgmma::wait<1>();
    if (unit != 0 && arrives) ptx::barrier_arrive(ring.empty(before));
    before = at.stage;
  }
  wgmma::wait<0>();
  if (arrives) ptx::barrier_arrive(ring.empty(before));
}

template <class S>
__device__ void write_out(const ValueProduct& p, int first, int tile,
                          const float (&sum)[S::kN / 2]) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int row = tile * kRows + thread / 32 * 16 + thread % 32 / 4;
  const int t = thread % 4;
#pragma unroll
  for (int i = 0; i < S::kN / 2; ++i) {
    const int column = first + 8 * (i / 4) + 2 * t + i % 2;
    if (column >= p.m) continue;
    const int64_t at = column * p.out_stride + row + 8 * (i / 2 % 2);
    if (p.out_bf16 != nullptr) {
      p.out_bf16[at] = static_cast<uint16_t>(fast::narrow(sum[i]));
    } else {
      p.out[at] = sum[i];
    }
  }
}

template <class S>
__device__ void consume(const ValueProduct& p, const Ring<S>& ring) {
  const int group = static_cast<int>(threadIdx.x) / 128;
  Cursor<S::kStages> at;
  for (Walk<S> walk(p); walk.more(); walk.next()) {
    float sum[S::kN / 2];
    multiply(walk.units, group, ring, at, sum);
    write_out<S>(p, walk.piece() * S::kN, walk.tile() + group, sum);
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    value_kernel(const __grid_constant__ ValueProduct p) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const Ring<S> ring(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      ptx::barrier_init(ring.full(i), 1);
      ptx::barrier_init(ring.empty(i), 4 * S::kTiles);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x / 128 == S::kTiles) {
    if (threadIdx.x % 32 == 0) produce(p, ring);
  } else {
    // Outputs may be read by kernels that are not complete.
    ptx::wait_for_inputs();
    ptx::launch_dependents();
    consume(p, ring);
  }
}

template <int kN, int kTiles, int kStages>
cudaError_t launch(const ValueProduct& p, cudaStream_t stream) {
  using S = Shape<kN, kTiles, kStages>;
  const int64_t pieces = (p.m + kN - 1) / kN;
  const int64_t chunks = pieces * kN * p.groups * (p.k / kUnit) * 8;
  const auto stagers = static_cast<unsigned>(
      std::min<int64_t>((chunks + kStageThreads - 1) / kStageThreads, int64_t{8} * kProcessors));
  cudaError_t status = launch_dependent(stage_kernel<kN>, {stagers, kStageThreads}, p, stream);
  if (status != cudaSuccess) return status;
  status =
      cudaFuncSetAttribute(value_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes);
  if (status != cudaSuccess) return status;
  const auto blocks = std::min<int64_t>(pieces * (p.n / kRows / kTiles), kProcessors);
  return launch_dependent(value_kernel<S>, {static_cast<unsigned>(blocks), S::kThreads, S::kBytes},
                          p, stream);
}

}  // namespace

cudaError_t pack_values(const PackValues& w, cudaStream_t stream) {
  if (w.n % kRows != 0 || w.k % kUnit != 0 || w.n < kRows) return cudaErrorInvalidValue;
  pack_kernel<<<dim3(w.k / kUnit, w.n / kRows), kPackThreads, 0, stream>>>(w);
  return cudaGetLastError();
}

cudaError_t value_product(const ValueProduct& p, cudaStream_t stream) {
  const bool whole = p.groups > 0 && p.n % (p.groups * kRows) == 0 && p.k % kUnit == 0;
  if (!whole || p.k < kUnit || p.m < 1 || p.x_stride % 8 != 0) return cudaErrorInvalidValue;
  if (p.m <= 8) return launch<8, 1, 20>(p, stream);
  if (p.m <= 16) return launch<16, 1, 18>(p, stream);
  if (p.m <= 32) return launch<32, 1, 16>(p, stream);
  if (p.m <= 64) return launch<64, 1, 12>(p, stream);
  // A tile of two must not reach over the end of a group.
  return p.n / p.groups % (2 * kRows) == 0 ? launch<128, 2, 6>(p, stream)
                                           : launch<128, 1, 8>(p, stream);
}

}  // namespace fathom::cuda
