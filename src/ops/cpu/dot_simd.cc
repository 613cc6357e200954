#include "ops/cpu/dot_simd.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

// Targets without a fused multiply-add cannot follow the summation tree.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/dot_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// The tables are shared by all targets.
#ifndef FATHOM_DOT_SIMD_TABLES
#define FATHOM_DOT_SIMD_TABLES
namespace fathom::cpu {
namespace {

// value(code) * scale as the upper half of a float, by its two bytes: the product of an E2M1 and an
// E8M0 value has at most 2 significant bits, so the lower half is zero and nothing is rounded.
struct ScaledE2m1 {
  std::array<uint8_t, 16> high;
  std::array<uint8_t, 16> low;
};

constexpr uint16_t scaled_e2m1_bits(int code, int scale) {
  const int magnitude = code & 7;
  const int sign = (code & 8) << 12;
  if (scale == 255) return 0x7fc0;
  if (magnitude == 0) return static_cast<uint16_t>(sign);
  // value = (1 + fraction / 2) 2^(exponent - 127)
  const int fraction = magnitude > 1 ? magnitude & 1 : 0;
  const int exponent = scale + (magnitude > 1 ? magnitude / 2 - 1 : -1);
  if (exponent >= 255) return static_cast<uint16_t>(sign | 0x7f80);
  const int mantissa = fraction << 6;
  if (exponent > 0) return static_cast<uint16_t>(sign | exponent << 7 | mantissa);
  return static_cast<uint16_t>(sign | (0x80 | mantissa) >> (1 - exponent));
}

constexpr std::array<ScaledE2m1, 256> make_scaled_e2m1() {
  std::array<ScaledE2m1, 256> table = {};
  for (int scale = 0; scale < 256; ++scale) {
    for (int code = 0; code < 16; ++code) {
      const uint16_t bits = scaled_e2m1_bits(code, scale);
      table[static_cast<size_t>(scale)].high[static_cast<size_t>(code)] =
          static_cast<uint8_t>(bits >> 8);
      table[static_cast<size_t>(scale)].low[static_cast<size_t>(code)] =
          static_cast<uint8_t>(bits & 0xff);
    }
  }
  return table;
}
alignas(64) constexpr std::array<ScaledE2m1, 256> kScaledE2m1 = make_scaled_e2m1();

// The largest FP8 scale whose product with 2^8 is a float; the vector bodies read E4M3 codes as
// halves of binary16 values, which are 2^8 too small.
constexpr uint8_t kLargestFp8Scale = 246;

// Weights whose every scale the vector bodies can apply in one exact product.
bool ordinary(const MatmulArgs& args) {
  if (args.w->in() % 32 != 0) return false;
  if (args.w->format != WeightFormat::kFp8Block32) return true;
  uint8_t largest = 0;
  for (int64_t o = args.o_begin / 32; o <= (args.o_end - 1) / 32; ++o) {
    const uint8_t* scales = args.w->scale.row<const uint8_t>(o);
    for (int64_t b = 0; b < args.w->in() / 32; ++b) largest = std::max(largest, scales[b]);
  }
  return largest <= kLargestFp8Scale;
}

}  // namespace
}  // namespace fathom::cpu
#endif

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

HWY_BEFORE_NAMESPACE();
namespace fathom::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F()));
constexpr int kHalves = 16 / kLanes;  // vectors that hold the 16 virtual lanes
constexpr int kBlock = 32 / kLanes;   // vectors of a block of 32
static_assert(kLanes == 8 || kLanes == 16);

// ---- Decoders: 32 weights of a row, in order, with their scale
// -----------------------------------

struct Fp8Row {
  const uint8_t* codes;
  const uint8_t* scales;

  Fp8Row(const Weight& w, int64_t o)
      : codes(w.data.row<const uint8_t>(o)), scales(w.scale.row<const uint8_t>(o / 32)) {}

  HWY_INLINE void block(int64_t b, V* HWY_RESTRICT out) const {
    const hn::FixedTag<int8_t, 16> d8;
    const hn::FixedTag<int16_t, 16> d16;
    const F f;
    const auto scale = hn::BitCast(f, hn::Set(hn::RebindToUnsigned<F>(), (scales[b] + 8u) << 23));
    HWY_UNROLL(2)
    for (int h = 0; h < 2; ++h) {
      const auto bytes = hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes) + 32 * b + 16 * h);
      // The sign goes to bit 15 and the other seven bits below bit 14: half of a binary16.
      const auto half = hn::And(hn::ShiftLeft<7>(hn::PromoteTo(d16, bytes)),
                                hn::Set(d16, static_cast<int16_t>(0xbf80)));
      const auto halves = hn::BitCast(hn::Rebind<hwy::float16_t, decltype(d16)>(), half);
#if HWY_TARGET == HWY_AVX3
      out[h] = hn::Mul(hn::PromoteTo(f, halves), scale);
#else
      const hn::Half<hn::Rebind<hwy::float16_t, decltype(d16)> > dh;
      out[2 * h] = hn::Mul(hn::PromoteTo(f, hn::LowerHalf(dh, halves)), scale);
      out[2 * h + 1] = hn::Mul(hn::PromoteTo(f, hn::UpperHalf(dh, halves)), scale);
#endif
    }
  }
};

struct Fp4Row {
  const uint8_t* codes;
  const uint8_t* scales;

  Fp4Row(const Weight& w, int64_t o)
      : codes(w.data.row<const uint8_t>(o)), scales(w.scale.row<const uint8_t>(o)) {}

  HWY_INLINE void block(int64_t b, V* HWY_RESTRICT out) const {
    const hn::FixedTag<uint8_t, 16> d8;
    const hn::FixedTag<uint16_t, 8> d16;
    const hn::FixedTag<float, 8> f8;
    const ScaledE2m1& table = kScaledE2m1[scales[b]];
    const auto high = hn::LoadU(d8, table.high.data());
    const auto low = hn::LoadU(d8, table.low.data());
    const auto mask = hn::Set(d8, 0x0f);
    const auto raw = hn::LoadU(d8, codes + 16 * b);
    const auto even = hn::And(raw, mask);
    const auto odd = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, raw))), mask);
    HWY_UNROLL(2)
    for (int h = 0; h < 2; ++h) {
      const auto c =
          h == 0 ? hn::InterleaveLower(d8, even, odd) : hn::InterleaveUpper(d8, even, odd);
      const auto hb = hn::TableLookupBytes(high, c);
      const auto lb = hn::TableLookupBytes(low, c);
      const hn::Rebind<hwy::bfloat16_t, decltype(f8)> db;
      const auto first = hn::PromoteTo(f8, hn::BitCast(db, hn::InterleaveLower(d8, lb, hb)));
      const auto second = hn::PromoteTo(f8, hn::BitCast(db, hn::InterleaveUpper(d8, lb, hb)));
#if HWY_TARGET == HWY_AVX3
      out[h] = hn::Combine(F(), second, first);
#else
      out[2 * h] = first;
      out[2 * h + 1] = second;
#endif
    }
  }
};

struct Bf16Row {
  const Bf16* values;

  Bf16Row(const Weight& w, int64_t o) : values(w.data.row<const Bf16>(o)) {}

  HWY_INLINE void block(int64_t b, V* HWY_RESTRICT out) const {
    const F f;
    const hn::Rebind<uint16_t, F> d16;
    const hn::Rebind<hwy::bfloat16_t, F> db;
    HWY_UNROLL(4)
    for (int i = 0; i < kBlock; ++i) {
      const auto bits = hn::LoadU(d16, values + 32 * b + kLanes * i);
      out[i] = hn::PromoteTo(f, hn::BitCast(db, bits));
    }
  }
};

struct F32Row {
  const float* values;

  F32Row(const Weight& w, int64_t o) : values(w.data.row<const float>(o)) {}

  HWY_INLINE void block(int64_t b, V* HWY_RESTRICT out) const {
    HWY_UNROLL(4)
    for (int i = 0; i < kBlock; ++i) out[i] = hn::LoadU(F(), values + 32 * b + kLanes * i);
  }
};

// ---- Folding
// -------------------------------------------------------------------------------------

using F4 = hn::FixedTag<float, 4>;
using V4 = hn::Vec<F4>;

// Folds 8 and 4: lane i of the result is the sum over virtual lanes i, i + 4, i + 8, i + 12.
HWY_INLINE V4 fold_to_4(const V* acc) {
#if HWY_TARGET == HWY_AVX3
  const hn::FixedTag<float, 8> f8;
  const auto s = hn::Add(hn::LowerHalf(f8, acc[0]), hn::UpperHalf(f8, acc[0]));
#else
  const auto s = hn::Add(acc[0], acc[1]);
#endif
  return hn::Add(hn::LowerHalf(F4(), s), hn::UpperHalf(F4(), s));
}

// Folds 2 and 1 of four sums at once.
HWY_INLINE V4 fold_four(V4 a, V4 b, V4 c, V4 d) {
  const F4 f;
  const hn::FixedTag<uint64_t, 2> d64;
  const auto pairs = [&](V4 p, V4 q) HWY_ATTR {
    const auto x = hn::BitCast(d64, p);
    const auto y = hn::BitCast(d64, q);
    return hn::Add(hn::BitCast(f, hn::InterleaveLower(d64, x, y)),
                   hn::BitCast(f, hn::InterleaveUpper(d64, x, y)));
  };
  const V4 ab = pairs(a, b);
  const V4 cd = pairs(c, d);
  return hn::Add(hn::ConcatEven(f, cd, ab), hn::ConcatOdd(f, cd, ab));
}

HWY_INLINE void store(const MatmulArgs& args, int64_t at, V4 sums, int64_t n) {
  alignas(16) float values[4];
  hn::Store(sums, F4(), values);
  if (args.out_bf16 != nullptr) {
    for (int64_t i = 0; i < n; ++i) args.out_bf16[at + i] = float_to_bf16(values[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) args.out[at + i] = values[i];
  }
}

float dot_vector(const float* a, const float* b, int64_t K) {
  const F f;
  V acc[kHalves];
  for (V& v : acc) v = hn::Zero(f);
  for (int64_t k = 0; k < K; k += 16) {
    HWY_UNROLL(2)
    for (int h = 0; h < kHalves; ++h) {
      acc[h] =
          hn::MulAdd(hn::LoadU(f, a + k + h * kLanes), hn::LoadU(f, b + k + h * kLanes), acc[h]);
    }
  }
  const V4 s = fold_to_4(acc);
  return hn::GetLane(fold_four(s, s, s, s));
}

const float* row_of(const MatmulArgs& args, int64_t r) {
  return args.x + (args.x_rows != nullptr ? args.x_rows[r] : r) * args.w->in();
}

// ---- Few rows: weights are decoded in registers
// ---------------------------------------------------

// R rows from row r, 4 outputs from o; n of them exist and are written.
template <class Row, int R>
HWY_INLINE void few_rows_4(const MatmulArgs& args, int64_t r, int64_t o, int64_t n) {
  constexpr int kOutputs = R == 1 ? 4 : R == 2 ? 2 : 1;  // at once: accumulators in registers
  const F f;
  const int64_t n_blocks = args.w->in() / 32;
  V4 sums[R][4];
  const float* x[R];
  for (int i = 0; i < R; ++i) x[i] = row_of(args, r + i);
  for (int first = 0; first < 4; first += kOutputs) {
    const auto row = [&](int j)
                         HWY_ATTR { return Row(*args.w, o + std::min<int64_t>(first + j, n - 1)); };
    const Row rows[4] = {row(0), row(kOutputs > 1), row(2 % kOutputs), row(3 % kOutputs)};
    V acc[kOutputs][R][kHalves];
    HWY_UNROLL(4)
    for (int j = 0; j < kOutputs; ++j) {
      HWY_UNROLL(4)
      for (int i = 0; i < R; ++i) {
        HWY_UNROLL(2)
        for (int h = 0; h < kHalves; ++h) acc[j][i][h] = hn::Zero(f);
      }
    }
    for (int64_t b = 0; b < n_blocks; ++b) {
      HWY_UNROLL(4)
      for (int j = 0; j < kOutputs; ++j) {
        V w[kBlock];
        rows[j].block(b, w);
        HWY_UNROLL(4)
        for (int i = 0; i < R; ++i) {
          HWY_UNROLL(4)
          for (int v = 0; v < kBlock; ++v) {
            const V values = hn::LoadU(f, x[i] + 32 * b + v * kLanes);
            acc[j][i][v % kHalves] = hn::MulAdd(values, w[v], acc[j][i][v % kHalves]);
          }
        }
      }
    }
    HWY_UNROLL(4)
    for (int j = 0; j < kOutputs; ++j) {
      HWY_UNROLL(4)
      for (int i = 0; i < R; ++i) sums[i][first + j] = fold_to_4(acc[j][i]);
    }
  }
  for (int i = 0; i < R; ++i) {
    store(args, (r + i) * args.out_stride + (o - args.o_begin),
          fold_four(sums[i][0], sums[i][1], sums[i][2], sums[i][3]), n);
  }
}

// FP4 and one row of x: two (AVX2) or four (AVX-512) weight rows share a vector, a row in each 128
// bits, which saves most of the widening. Lanes 4 q .. 4 q + 3 of a row stand in acc[q].
HWY_INLINE auto load_rows(const uint8_t* const* p, int64_t offset) {
  const hn::FixedTag<uint8_t, 16> d;
  const hn::FixedTag<uint8_t, 32> d2;
  const auto first = hn::Combine(d2, hn::LoadU(d, p[1] + offset), hn::LoadU(d, p[0] + offset));
#if HWY_TARGET == HWY_AVX3
  const auto second = hn::Combine(d2, hn::LoadU(d, p[3] + offset), hn::LoadU(d, p[2] + offset));
  return hn::Combine(hn::FixedTag<uint8_t, 64>(), second, first);
#else
  return first;
#endif
}

// Four outputs from o; n of them exist.
HWY_INLINE void one_row_fp4(const MatmulArgs& args, int64_t r, int64_t o, int64_t n) {
  constexpr int kShare = kLanes / 4;
  constexpr int kGroups = 4 / kShare;
  const F f;
  const hn::Repartition<uint8_t, F> d8;
  const hn::Repartition<uint16_t, F> d16;
  const uint8_t* codes[4];
  const uint8_t* scales[4];
  for (int j = 0; j < 4; ++j) {
    const int64_t row = o + std::min<int64_t>(j, n - 1);
    codes[j] = args.w->data.row<const uint8_t>(row);
    scales[j] = args.w->scale.row<const uint8_t>(row);
  }
  const float* x = row_of(args, r);
  const auto mask = hn::Set(d8, 0x0f);
  const auto zero = hn::Zero(d16);
  V acc[kGroups][4];
  HWY_UNROLL(2)
  for (int g = 0; g < kGroups; ++g) {
    HWY_UNROLL(4)
    for (int q = 0; q < 4; ++q) acc[g][q] = hn::Zero(f);
  }
  const int64_t n_blocks = args.w->in() / 32;
  for (int64_t b = 0; b < n_blocks; ++b) {
    HWY_UNROLL(2)
    for (int g = 0; g < kGroups; ++g) {
      const uint8_t* tables[kShare];
      HWY_UNROLL(4)
      for (int s = 0; s < kShare; ++s) {
        tables[s] = kScaledE2m1[scales[g * kShare + s][b]].high.data();
      }
      const auto high = load_rows(tables, 0);
      const auto low = load_rows(tables, 16);
      const auto raw = load_rows(codes + g * kShare, 16 * b);
      const auto even = hn::And(raw, mask);
      const auto odd = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, raw))), mask);
      HWY_UNROLL(2)
      for (int h = 0; h < 2; ++h) {
        const auto c =
            h == 0 ? hn::InterleaveLower(d8, even, odd) : hn::InterleaveUpper(d8, even, odd);
        const auto hb = hn::TableLookupBytes(high, c);
        const auto lb = hn::TableLookupBytes(low, c);
        const auto u0 = hn::BitCast(d16, hn::InterleaveLower(d8, lb, hb));
        const auto u1 = hn::BitCast(d16, hn::InterleaveUpper(d8, lb, hb));
        const float* at = x + 32 * b + 16 * h;
        const auto step = [&](int q, auto bits) HWY_ATTR {
          acc[g][q] = hn::MulAdd(hn::LoadDup128(f, at + 4 * q), hn::BitCast(f, bits), acc[g][q]);
        };
        step(0, hn::InterleaveLower(d16, zero, u0));
        step(1, hn::InterleaveUpper(d16, zero, u0));
        step(2, hn::InterleaveLower(d16, zero, u1));
        step(3, hn::InterleaveUpper(d16, zero, u1));
      }
    }
  }
  alignas(64) float lanes[4][4];
  HWY_UNROLL(2)
  for (int g = 0; g < kGroups; ++g) {
    const auto s = hn::Add(hn::Add(acc[g][0], acc[g][2]), hn::Add(acc[g][1], acc[g][3]));
    hn::Store(s, f, lanes[g * kShare]);
  }
  store(args, r * args.out_stride + (o - args.o_begin),
        fold_four(hn::Load(F4(), lanes[0]), hn::Load(F4(), lanes[1]), hn::Load(F4(), lanes[2]),
                  hn::Load(F4(), lanes[3])),
        n);
}

template <class Row, int R>
void few_rows(const MatmulArgs& args, int64_t r) {
  for (int64_t o = args.o_begin; o < args.o_end; o += 4) {
    const int64_t n = std::min<int64_t>(4, args.o_end - o);
    if constexpr (R == 1 && std::is_same_v<Row, Fp4Row>) {
      one_row_fp4(args, r, o, n);
    } else {
      few_rows_4<Row, R>(args, r, o, n);
    }
  }
}

// ---- Many rows: panels of weights are widened once and meet all rows
// ------------------------------

// Sizes in floats. Accumulators of a block of rows (196 KiB) and the panel (64 KiB) live in L2, the
// packed rows and four panel rows in L1.
constexpr int64_t kRowBlock = 96;
constexpr int64_t kPanel = 32;  // outputs
constexpr int64_t kDepth = 512;
constexpr int64_t kPacked = 6;  // rows of x at once
constexpr int kTileRows = kLanes == 16 ? 6 : 3;
constexpr int kTileOutputs = 4;

struct Workspace {
  alignas(64) float acc[kRowBlock * kPanel * 16];
  alignas(64) float panel[kPanel * kDepth];
  alignas(64) float packed[kPacked * kDepth];
};

// R rows of x meet 4 panel rows over `depth` elements; acc: row stride kPanel * 16.
template <int R>
HWY_INLINE void tile(const float* HWY_RESTRICT x, const float* HWY_RESTRICT w, int64_t depth,
                     float* HWY_RESTRICT acc) {
  const F f;
  HWY_UNROLL(1)
  for (int h = 0; h < kHalves; ++h) {
    V a[R][kTileOutputs];
    HWY_UNROLL(6)
    for (int i = 0; i < R; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < kTileOutputs; ++j) {
        a[i][j] = hn::Load(f, acc + (i * kPanel + j) * 16 + h * kLanes);
      }
    }
    for (int64_t k = h * kLanes; k < depth; k += 16) {
      V values[R];
      HWY_UNROLL(6)
      for (int i = 0; i < R; ++i) values[i] = hn::Load(f, x + i * kDepth + k);
      HWY_UNROLL(4)
      for (int j = 0; j < kTileOutputs; ++j) {
        const V weight = hn::Load(f, w + j * kDepth + k);
        HWY_UNROLL(6)
        for (int i = 0; i < R; ++i) a[i][j] = hn::MulAdd(values[i], weight, a[i][j]);
      }
    }
    HWY_UNROLL(6)
    for (int i = 0; i < R; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < kTileOutputs; ++j) {
        hn::Store(a[i][j], f, acc + (i * kPanel + j) * 16 + h * kLanes);
      }
    }
  }
}

HWY_INLINE void tile_of(int64_t n, const float* x, const float* w, int64_t depth, float* acc) {
#if HWY_TARGET == HWY_AVX3
  if (n == 6) return tile<6>(x, w, depth, acc);
  if (n == 5) return tile<5>(x, w, depth, acc);
  if (n == 4) return tile<4>(x, w, depth, acc);
#endif
  if (n == 3) return tile<3>(x, w, depth, acc);
  if (n == 2) return tile<2>(x, w, depth, acc);
  tile<1>(x, w, depth, acc);
}

template <class Row>
void widen_panel(const Weight& w, int64_t o, int64_t n, int64_t k, int64_t depth, float* panel) {
  for (int64_t j = 0; j < n; ++j) {
    const Row row(w, o + j);
    for (int64_t b = 0; b < depth / 32; ++b) {
      V values[kBlock];
      row.block(k / 32 + b, values);
      HWY_UNROLL(4)
      for (int v = 0; v < kBlock; ++v) {
        hn::Store(values[v], F(), panel + j * kDepth + 32 * b + v * kLanes);
      }
    }
  }
  // Rows that fill up the last tile; their sums are not read.
  const int64_t filled = (n + kTileOutputs - 1) / kTileOutputs * kTileOutputs;
  std::fill(panel + n * kDepth, panel + filled * kDepth, 0.0f);
}

// Rows [r, r + n_rows) and outputs [o, o + n): n_rows <= kRowBlock, n <= kPanel.
template <class Row>
void many_rows_block(const MatmulArgs& args, Workspace& space, int64_t r, int64_t n_rows,
                     int64_t o) {
  const int64_t n = std::min(kPanel, args.o_end - o);
  const int64_t K = args.w->in();
  std::fill(space.acc, space.acc + n_rows * kPanel * 16, 0.0f);
  for (int64_t k = 0; k < K; k += kDepth) {
    const int64_t depth = std::min(kDepth, K - k);
    widen_panel<Row>(*args.w, o, n, k, depth, space.panel);
    for (int64_t i = 0; i < n_rows; i += kPacked) {
      const int64_t n_packed = std::min(kPacked, n_rows - i);
      for (int64_t p = 0; p < n_packed; ++p) {
        std::memcpy(space.packed + p * kDepth, row_of(args, r + i + p) + k,
                    static_cast<size_t>(depth) * sizeof(float));
      }
      for (int64_t j = 0; j < n; j += kTileOutputs) {
        for (int64_t p = 0; p < n_packed; p += kTileRows) {
          tile_of(std::min<int64_t>(kTileRows, n_packed - p), space.packed + p * kDepth,
                  space.panel + j * kDepth, depth, space.acc + ((i + p) * kPanel + j) * 16);
        }
      }
    }
  }
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t j = 0; j < n; j += 4) {
      V4 sums[4];
      HWY_UNROLL(4)
      for (int s = 0; s < 4; ++s) {
        V acc[kHalves];
        for (int h = 0; h < kHalves; ++h) {
          acc[h] = hn::Load(F(), space.acc + (i * kPanel + j + s) * 16 + h * kLanes);
        }
        sums[s] = fold_to_4(acc);
      }
      store(args, (r + i) * args.out_stride + (o + j - args.o_begin),
            fold_four(sums[0], sums[1], sums[2], sums[3]), std::min<int64_t>(4, n - j));
    }
  }
}

template <class Row>
void many_rows(const MatmulArgs& args) {
  Workspace space;
  for (int64_t r = 0; r < args.n_rows; r += kRowBlock) {
    const int64_t n_rows = std::min(kRowBlock, args.n_rows - r);
    for (int64_t o = args.o_begin; o < args.o_end; o += kPanel) {
      many_rows_block<Row>(args, space, r, n_rows, o);
    }
  }
}

template <class Row>
void matmul_of(const MatmulArgs& args) {
  constexpr int64_t kFew = 6;  // from here on a panel pays
  if (args.n_rows > kFew) return many_rows<Row>(args);
  int64_t r = 0;
  for (; r + 4 <= args.n_rows; r += 4) few_rows<Row, 4>(args, r);
  if (args.n_rows - r == 3) few_rows<Row, 3>(args, r);
  if (args.n_rows - r == 2) few_rows<Row, 2>(args, r);
  if (args.n_rows - r == 1) few_rows<Row, 1>(args, r);
}

void matmul_vector(const MatmulArgs& args) {
  if (args.o_begin >= args.o_end) return;
  if (!ordinary(args)) return matmul_scalar(args);
  switch (args.w->format) {
    case WeightFormat::kBf16:
      return matmul_of<Bf16Row>(args);
    case WeightFormat::kF32:
      return matmul_of<F32Row>(args);
    case WeightFormat::kFp8Block32:
      return matmul_of<Fp8Row>(args);
    case WeightFormat::kFp4Row32:
      return matmul_of<Fp4Row>(args);
  }
}

}  // namespace

float dot_body(const float* a, const float* b, int64_t K) { return dot_vector(a, b, K); }
void matmul_body(const MatmulArgs& args) { matmul_vector(args); }

}  // namespace HWY_NAMESPACE
}  // namespace fathom::cpu
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace fathom::cpu {

#if HWY_TARGETS & HWY_AVX2
bool has_avx2() { return (hwy::SupportedTargets() & HWY_AVX2) != 0; }
float dot_avx2(const float* a, const float* b, int64_t K) { return N_AVX2::dot_body(a, b, K); }
void matmul_avx2(const MatmulArgs& args) { N_AVX2::matmul_body(args); }
#else
bool has_avx2() { return false; }
float dot_avx2(const float*, const float*, int64_t) { return FATHOM_CHECK(has_avx2()), 0.0f; }
void matmul_avx2(const MatmulArgs&) { FATHOM_CHECK(has_avx2()); }
#endif

#if HWY_TARGETS & HWY_AVX3
bool has_avx512() { return (hwy::SupportedTargets() & HWY_AVX3) != 0; }
float dot_avx512(const float* a, const float* b, int64_t K) { return N_AVX3::dot_body(a, b, K); }
void matmul_avx512(const MatmulArgs& args) { N_AVX3::matmul_body(args); }
#else
bool has_avx512() { return false; }
float dot_avx512(const float*, const float*, int64_t) { return FATHOM_CHECK(has_avx512()), 0.0f; }
void matmul_avx512(const MatmulArgs&) { FATHOM_CHECK(has_avx512()); }
#endif

}  // namespace fathom::cpu
#endif
