#include "ops/cuda/pack.h"

#include "ops/cuda/numbers.cuh"

namespace fathom::cuda {
namespace {

constexpr int kGroup = 32;

// The released row behind packed row `row` of tile `tile`.
struct SourceRow {
  bool up = false;
  int row = 0;
};
__device__ SourceRow source_row(int tile, int row, bool paired) {
  if (!paired) return {false, kPackedRows * tile + row};
  return {(row & 8) != 0, 32 * tile + 8 * (row >> 4) + (row & 7)};
}

// Codes of which `after` is 2^shift times `before` do not differ.
__device__ int differing_codes(uint32_t before, uint32_t after, int shift) {
  const float back = fast::power(static_cast<uint32_t>(127 - max(shift, -40)));
  int count = 0;
  for (int i = 0; i < 4; i += 2) {
    const float2 x = fast::from_e4m3x2(before >> (8 * i) & 0xFFFFU);
    const float2 y = fast::from_e4m3x2(after >> (8 * i) & 0xFFFFU);
    count += (y.x * back != x.x) + (y.y * back != x.y);
  }
  return count;
}

// The exponent field that a code's magnitude needs: one more where the mantissa is full, since the
// highest field has no room for it.
__device__ int exponent_field(uint32_t codes) {
  uint32_t top = 0;
  for (int i = 0; i < 4; ++i) top = max(top, codes >> (8 * i) & 0x7FU);
  return static_cast<int>((top + 1) >> 3);
}

__device__ void add_changed(int count, unsigned long long* changed) {
  count = __reduce_add_sync(0xFFFFFFFFU, count);
  if (threadIdx.x % 32 == 0 && count > 0)
    atomicAdd(changed, static_cast<unsigned long long>(count));
}

// What a thread of pack_dense_kernel has of a unit: rows g and g + 8 of its warp's sixteen.
struct DenseRow {
  const uint8_t* codes;   // of the row, at the unit's first column
  const uint8_t* scales;  // of its blocks of 32 columns
  int group;              // of rows that share an exponent: 0 or 1
};
__device__ DenseRow dense_row(const PackDense& w, int half) {
  const int warp = threadIdx.x / 32;
  const bool paired = w.up_codes != nullptr;
  const SourceRow source =
      source_row(static_cast<int>(blockIdx.y), 16 * warp + threadIdx.x % 32 / 4 + 8 * half, paired);
  const auto unit = static_cast<int>(blockIdx.x);
  return {(source.up ? w.up_codes : w.codes) + static_cast<size_t>(source.row) * w.k +
              kUnitColumns * unit,
          (source.up ? w.up_scales : w.scales) +
              static_cast<size_t>(source.row / kGroup) * (w.k / kGroup) + 4 * unit,
          paired ? half : warp / 2};
}
__device__ uint32_t dense_codes(const DenseRow& row, int step, int side) {
  return *reinterpret_cast<const uint32_t*>(row.codes + 32 * step + 16 * side +
                                            4 * (threadIdx.x % 4));
}

constexpr int kTopField = 15;

// One block a unit, one thread a lane of a warp of the warpgroup that will read it. The exponent of
// a group is the lowest that leaves all its values inside the format: blocks whose codes do not
// fill it are raised, so that as few as possible are lowered.
__global__ void pack_dense_kernel(PackDense w) {
  __shared__ int needed[2];
  if (threadIdx.x < 2) needed[threadIdx.x] = 0;
  __syncthreads();
  for (int half = 0; half < 2; ++half) {
    const DenseRow row = dense_row(w, half);
    int most = 0;
    for (int step = 0; step < 4; ++step) {
      const int field =
          max(exponent_field(dense_codes(row, step, 0)), exponent_field(dense_codes(row, step, 1)));
      most = max(most, row.scales[step] + field);
    }
    atomicMax(&needed[row.group], most);
  }
  __syncthreads();
  uint8_t* out =
      w.units + (static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x) * kDenseUnitBytes;
  if (threadIdx.x < kUnitHeader) {
    const int group = min(static_cast<int>(threadIdx.x), 1);
    out[threadIdx.x] =
        threadIdx.x < 2 ? static_cast<uint8_t>(max(needed[group] - kTopField, 0)) : 0;
  }
  int changed = 0;
  for (int half = 0; half < 2; ++half) {
    const DenseRow row = dense_row(w, half);
    const int exponent = max(needed[row.group] - kTopField, 0);
    for (int step = 0; step < 4; ++step) {
      const int shift = row.scales[step] - exponent;
      for (int side = 0; side < 2; ++side) {
        const uint32_t code = dense_codes(row, step, side);
        const uint32_t moved = shift == 0 ? code : fast::moved_e4m3x4(code, shift);
        if (shift != 0) changed += differing_codes(code, moved, shift);
        const int at =
            kUnitHeader + (step * 128 + static_cast<int>(threadIdx.x)) * 16 + 8 * side + 4 * half;
        *reinterpret_cast<uint32_t*>(out + at) = moved;
      }
    }
  }
  add_changed(changed, w.changed);
}

__device__ uint32_t nibble(const uint8_t* row, int column) {
  return row[column >> 1] >> (4 * (column & 1)) & 15U;
}

// E2M1 magnitude times 2^-shift, to the nearest E2M1 value, ties to the even code.
__device__ uint32_t lowered_e2m1(uint32_t code, uint32_t shift) {
  constexpr float kValues[8] = {0.F, 0.5F, 1.F, 1.5F, 2.F, 3.F, 4.F, 6.F};
  const float x = kValues[code & 7U] * fast::power(127U - min(shift, 40U));
  uint32_t best = 0;
  for (uint32_t c = 1; c < 8; ++c) {
    const float nearer = fabsf(kValues[c] - x) - fabsf(kValues[best] - x);
    if (nearer < 0.F || (nearer == 0.F && (c & 1U) == 0)) best = c;
  }
  return best | (code & 8U);
}

// The word that decodes to `low` (four values, by the selector) and `high`: magnitudes in the low
// three bits of each nibble, nibble i of `low` then of `high`; sign of low value j in bit 8 j + 7,
// of high value j in bit 8 j + 3.
__device__ uint32_t fp4_word(const uint32_t (&low)[4], const uint32_t (&high)[4]) {
  uint32_t word = 0;
  for (int j = 0; j < 4; ++j) {
    word |= (low[j] & 7U) << (4 * j) | (high[j] & 7U) << (16 + 4 * j);
    word |= (low[j] >> 3) << (8 * j + 7) | (high[j] >> 3) << (8 * j + 3);
  }
  return word;
}

constexpr uint32_t kTopExponent = 12;

__device__ float e2m1(uint32_t code) {
  constexpr float kValues[8] = {0.F, 0.5F, 1.F, 1.5F, 2.F, 3.F, 4.F, 6.F};
  return kValues[code & 7U];
}

// Four codes from `column` on, lowered by `lost` binades; returns how many values changed.
__device__ int take_codes(const uint8_t* row, int column, uint32_t lost, uint32_t (&out)[4]) {
  int changed = 0;
  for (int j = 0; j < 4; ++j) {
    const uint32_t code = nibble(row, column + j);
    out[j] = lost == 0 ? code : lowered_e2m1(code, lost);
    changed += e2m1(out[j]) != e2m1(code) * fast::power(127U - min(lost, 40U));
  }
  return changed;
}

// One row's share of a unit by one thread: four words and, from t = 0, four exponents.
struct PackedRow {
  const uint8_t* codes;   // of the row, at the unit's first column
  const uint8_t* scales;  // likewise
  uint32_t top;           // the row's largest scale
};
__device__ int pack_row(const PackedRow& row, int half, uint8_t* unit) {
  const int t = threadIdx.x % 4;
  const int g = threadIdx.x % 32 / 4;
  const int warp = threadIdx.x / 32;
  int changed = 0;
  for (int step = 0; step < 4; ++step) {
    const uint32_t below = row.top - row.scales[step];
    const uint32_t lost = below > kTopExponent - 1 ? below - (kTopExponent - 1) : 0;
    uint32_t low[4];
    uint32_t high[4];
    changed += take_codes(row.codes, 32 * step + 4 * t, lost, low);
    changed += take_codes(row.codes, 32 * step + 16 + 4 * t, lost, high);
    const int at =
        256 + (step / 2 * 128 + static_cast<int>(threadIdx.x)) * 16 + 8 * (step % 2) + 4 * half;
    *reinterpret_cast<uint32_t*>(unit + at) = fp4_word(low, high);
    if (t == 0) {
      unit[(8 * warp + g) * 8 + 4 * half + step] =
          static_cast<uint8_t>(kTopExponent - min(below, kTopExponent - 1));
    }
  }
  return changed;
}

// One row of blocks a tile: first the rows' largest scales, then the units.
__global__ void pack_fp4_kernel(PackFp4 w) {
  __shared__ uint32_t tops[kPackedRows];
  const int tile = blockIdx.x;
  const bool paired = w.up_codes != nullptr;
  const int groups = w.k / kGroup;
  if (threadIdx.x < kPackedRows) {
    const SourceRow source = source_row(tile, static_cast<int>(threadIdx.x), paired);
    const uint8_t* scales =
        (source.up ? w.up_scales : w.scales) + static_cast<size_t>(source.row) * groups;
    uint32_t top = 0;
    for (int i = 0; i < groups; ++i) top = max(top, static_cast<uint32_t>(scales[i]));
    tops[threadIdx.x] = top;
    w.row_scales[kPackedRows * tile + threadIdx.x] = fast::power(top) * 0x1p-6F;
  }
  __syncthreads();
  int changed = 0;
  const int units = w.k / kUnitColumns;
  for (int unit = blockIdx.y; unit < units; unit += gridDim.y) {
    uint8_t* out = w.units + (static_cast<size_t>(tile) * units + unit) * kFp4UnitBytes;
    for (int half = 0; half < 2; ++half) {
      const int packed_row = 16 * (threadIdx.x / 32) + threadIdx.x % 32 / 4 + 8 * half;
      const SourceRow source = source_row(tile, packed_row, paired);
      const uint8_t* codes = (source.up ? w.up_codes : w.codes) +
                             static_cast<size_t>(source.row) * (w.k / 2) + unit * kUnitColumns / 2;
      const uint8_t* scales = (source.up ? w.up_scales : w.scales) +
                              static_cast<size_t>(source.row) * groups + 4 * unit;
      changed += pack_row({codes, scales, tops[packed_row]}, half, out);
    }
  }
  add_changed(changed, w.changed);
}

}  // namespace

cudaError_t pack_dense(const PackDense& weight, cudaStream_t stream) {
  if (weight.n % kPackedRows != 0 || weight.k % kUnitColumns != 0) return cudaErrorInvalidValue;
  const dim3 grid(weight.k / kUnitColumns, weight.n / kPackedRows);
  pack_dense_kernel<<<grid, 128, 0, stream>>>(weight);
  return cudaGetLastError();
}

cudaError_t pack_fp4(const PackFp4& weight, cudaStream_t stream) {
  if (weight.n % kPackedRows != 0 || weight.k % kUnitColumns != 0) return cudaErrorInvalidValue;
  const dim3 grid(weight.n / kPackedRows, 8);
  pack_fp4_kernel<<<grid, 128, 0, stream>>>(weight);
  return cudaGetLastError();
}

}  // namespace fathom::cuda
