#include "ops/cpu/dot_simd.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "ops/cpu/scratch.h"

// Targets without a fused multiply-add cannot follow the summation tree.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/dot_kernel.cc"
#include "hwy/cache_control.h"
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

// The same as whole floats.
constexpr std::array<std::array<uint32_t, 16>, 256> make_float_e2m1() {
  std::array<std::array<uint32_t, 16>, 256> table = {};
  for (size_t scale = 0; scale < 256; ++scale) {
    for (size_t code = 0; code < 16; ++code) {
      const int bits = scaled_e2m1_bits(static_cast<int>(code), static_cast<int>(scale));
      table[scale][code] = static_cast<uint32_t>(bits) << 16;
    }
  }
  return table;
}
alignas(64) constexpr std::array<std::array<uint32_t, 16>, 256> kFloatE2m1 = make_float_e2m1();

// The largest FP8 scale whose product with 2^8 is a float: E4M3 codes read as binary16 values are
// 2^8 too small.
constexpr int kLargestScale = 254 - 8;

// The largest scale of the FP8 weights that a call uses; 0 for other formats.
int largest_fp8_scale(const MatmulArgs& args) {
  if (args.w->format != WeightFormat::kFp8Block32) return 0;
  uint8_t largest = 0;
  const int64_t n_blocks = (args.w->in() + 31) / 32;
  for (int64_t o = args.o_begin / 32; o <= (args.o_end - 1) / 32; ++o) {
    const uint8_t* scales = args.w->scale.row<const uint8_t>(o);
    for (int64_t b = 0; b < n_blocks; ++b) largest = std::max(largest, scales[b]);
  }
  return largest;
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

// Weights are prefetched so many bytes before they are read: the processor's own prefetch ends with
// each page of 4 KiB.
constexpr int64_t kAhead = 2048;

// In which order a row's decoder leaves the elements of every 16; rows of x are brought into the
// same order before they meet.
//   kEvenOdd  0 2 4 ... 14, 1 3 5 ... 15
//   kFours    0 4 8 12, 1 5 9 13, 2 6 10 14, 3 7 11 15
enum class Order { kNatural, kEvenOdd, kFours };

// ---- Decoders: 32 weights of a row with their scale
// ----------------------------------------------

struct Fp8Row {
  static constexpr Order kOrder = Order::kNatural;
  static constexpr bool kScalesOnX = false;
  static constexpr int kBlocksALine = 2;
  const uint8_t* codes;
  const uint8_t* scales;

  Fp8Row(const Weight& w, int64_t o)
      : codes(w.data.row<const uint8_t>(o)), scales(w.scale.row<const uint8_t>(o / 32)) {}

  const void* at(int64_t b) const { return codes + 32 * b; }

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

#if HWY_TARGET == HWY_AVX2
// The same for few rows: without widening shuffles (even elements before odd ones, 8 each, in every
// 16), and without scales, which the rows of x carry instead (FewRows).
struct Fp8EvenOddRow {
  static constexpr Order kOrder = Order::kEvenOdd;
  static constexpr bool kScalesOnX = true;
  static constexpr int kBlocksALine = 2;
  const uint8_t* codes;

  Fp8EvenOddRow(const Weight& w, int64_t o) : codes(w.data.row<const uint8_t>(o)) {}

  const void* at(int64_t b) const { return codes + 32 * b; }

  HWY_INLINE void block(int64_t b, V* HWY_RESTRICT out) const {
    const F f;
    const hn::Repartition<int16_t, F> d16;
    const hn::Rebind<hwy::float16_t, F> dh;
    const auto raw = hn::LoadU(d16, reinterpret_cast<const int16_t*>(codes + 32 * b));
    const auto mask = hn::Set(d16, static_cast<int16_t>(0xbf80));
    HWY_UNROLL(2)
    for (int parity = 0; parity < 2; ++parity) {
      // The sign stays in bit 15 and the other seven bits go below bit 14.
      const auto half = hn::And(hn::ShiftRight<1>(parity == 0 ? hn::ShiftLeft<8>(raw) : raw), mask);
      const auto halves = hn::BitCast(hn::Repartition<hwy::float16_t, F>(), half);
      out[parity] = hn::PromoteTo(f, hn::LowerHalf(dh, halves));
      out[2 + parity] = hn::PromoteTo(f, hn::UpperHalf(dh, halves));
    }
  }
};
#endif

#if HWY_TARGET == HWY_AVX3
// A table of 16 floats fills a vector, and codes choose from it: each 32-bit lane takes the four
// bytes with its code and shifts that to the bottom.
struct Fp4Row {
  static constexpr Order kOrder = Order::kNatural;
  static constexpr bool kScalesOnX = false;
  static constexpr int kBlocksALine = 4;
  const uint8_t* codes;
  const uint8_t* scales;

  Fp4Row(const Weight& w, int64_t o)
      : codes(w.data.row<const uint8_t>(o)), scales(w.scale.row<const uint8_t>(o)) {}

  const void* at(int64_t b) const { return codes + 16 * b; }

  HWY_INLINE void block(int64_t b, V* HWY_RESTRICT out) const {
    const hn::RebindToUnsigned<F> d32;
    const hn::Repartition<uint8_t, F> d8;
    alignas(64) static constexpr uint32_t kBytes[16] = {
        0x03020100, 0x03020100, 0x03020100, 0x03020100, 0x03020100, 0x03020100,
        0x03020100, 0x03020100, 0x07060504, 0x07060504, 0x07060504, 0x07060504,
        0x07060504, 0x07060504, 0x07060504, 0x07060504};
    alignas(64) static constexpr uint32_t kNibble[16] = {0, 4, 8, 12, 16, 20, 24, 28,
                                                         0, 4, 8, 12, 16, 20, 24, 28};
    const auto table = hn::Load(F(), reinterpret_cast<const float*>(kFloatE2m1[scales[b]].data()));
    const auto raw = hn::LoadDup128(d8, codes + 16 * b);
    const auto first = hn::Load(d32, kBytes);
    const auto shift = hn::Load(d32, kNibble);
    HWY_UNROLL(2)
    for (int h = 0; h < 2; ++h) {
      const auto bytes = h == 0 ? first : hn::Add(first, hn::Set(d32, 0x08080808));
      const auto four = hn::BitCast(d32, hn::TableLookupBytes(raw, hn::BitCast(d8, bytes)));
      // vpermps reads the lowest four bits of an index and no others.
      out[h] = V{_mm512_permutexvar_ps(hn::Shr(four, shift).raw, table.raw)};
    }
  }
};
#else
struct Fp4Row {
  static constexpr Order kOrder = Order::kNatural;
  static constexpr bool kScalesOnX = false;
  static constexpr int kBlocksALine = 4;
  const uint8_t* codes;
  const uint8_t* scales;

  Fp4Row(const Weight& w, int64_t o)
      : codes(w.data.row<const uint8_t>(o)), scales(w.scale.row<const uint8_t>(o)) {}

  const void* at(int64_t b) const { return codes + 16 * b; }

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
      out[2 * h] = first;
      out[2 * h + 1] = second;
    }
  }
};

// The same for few rows: even codes in the lower and odd ones in the upper 128 bits, so that codes
// are widened by shifts alone.
struct Fp4FoursRow {
  static constexpr Order kOrder = Order::kFours;
  static constexpr bool kScalesOnX = false;
  static constexpr int kBlocksALine = 4;
  const uint8_t* codes;
  const uint8_t* scales;

  Fp4FoursRow(const Weight& w, int64_t o)
      : codes(w.data.row<const uint8_t>(o)), scales(w.scale.row<const uint8_t>(o)) {}

  const void* at(int64_t b) const { return codes + 16 * b; }

  HWY_INLINE void block(int64_t b, V* HWY_RESTRICT out) const {
    const hn::FixedTag<uint8_t, 32> d8;
    const hn::FixedTag<uint32_t, 8> d32;
    const hn::FixedTag<float, 8> f8;
    alignas(32) static constexpr uint32_t kNibble[8] = {0, 0, 0, 0, 4, 4, 4, 4};
    const ScaledE2m1& table = kScaledE2m1[scales[b]];
    const auto high = hn::LoadDup128(d8, table.high.data());
    const auto low = hn::LoadDup128(d8, table.low.data());
    const auto raw = hn::BitCast(d32, hn::LoadDup128(d8, codes + 16 * b));
    const auto c =
        hn::And(hn::BitCast(d8, hn::Shr(raw, hn::Load(d32, kNibble))), hn::Set(d8, 0x0f));
    const auto hb = hn::TableLookupBytes(high, c);
    const auto lb = hn::TableLookupBytes(low, c);
    HWY_UNROLL(2)
    for (int h = 0; h < 2; ++h) {
      const auto pairs = hn::BitCast(
          d32, h == 0 ? hn::InterleaveLower(d8, lb, hb) : hn::InterleaveUpper(d8, lb, hb));
      const auto first = hn::BitCast(f8, hn::ShiftLeft<16>(pairs));
      const auto second = hn::BitCast(f8, hn::And(pairs, hn::Set(d32, 0xffff0000u)));
      out[2 * h] = first;
      out[2 * h + 1] = second;
    }
  }
};

#endif

struct Bf16Row {
  static constexpr Order kOrder = Order::kNatural;
  static constexpr bool kScalesOnX = false;
  static constexpr int kBlocksALine = 1;
  const Bf16* values;

  Bf16Row(const Weight& w, int64_t o) : values(w.data.row<const Bf16>(o)) {}

  const void* at(int64_t b) const { return values + 32 * b; }

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
  static constexpr Order kOrder = Order::kNatural;
  static constexpr bool kScalesOnX = false;
  static constexpr int kBlocksALine = 1;
  const float* values;

  F32Row(const Weight& w, int64_t o) : values(w.data.row<const float>(o)) {}

  const void* at(int64_t b) const { return values + 32 * b; }

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

#if HWY_TARGET == HWY_AVX2
// Lane i of q[j] is virtual lane j + 4 i.
HWY_INLINE V4 fold_fours_to_4(const V4* q) {
  const F4 f;
  const hn::FixedTag<uint64_t, 2> d64;
  const auto low = hn::Add(hn::InterleaveLower(f, q[0], q[1]), hn::InterleaveUpper(f, q[0], q[1]));
  const auto high = hn::Add(hn::InterleaveLower(f, q[2], q[3]), hn::InterleaveUpper(f, q[2], q[3]));
  const auto x = hn::BitCast(d64, low);
  const auto y = hn::BitCast(d64, high);
  return hn::Add(hn::BitCast(f, hn::InterleaveLower(d64, x, y)),
                 hn::BitCast(f, hn::InterleaveUpper(d64, x, y)));
}

// fold_to_4 of accumulators whose virtual lanes stand in another order.
template <Order order>
HWY_INLINE V4 fold_reordered_to_4(const V* acc) {
  const F4 f;
  V4 part[4];
  HWY_UNROLL(2)
  for (int h = 0; h < 2; ++h) {
    part[2 * h] = hn::LowerHalf(f, acc[h]);
    part[2 * h + 1] = hn::UpperHalf(f, acc[h]);
  }
  if constexpr (order == Order::kFours) return fold_fours_to_4(part);
  const auto even = hn::Add(part[0], part[1]);
  const auto odd = hn::Add(part[2], part[3]);
  return hn::Add(hn::InterleaveLower(f, even, odd), hn::InterleaveUpper(f, even, odd));
}
#endif

template <Order order>
HWY_INLINE V4 fold_ordered_to_4(const V* acc) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (order != Order::kNatural) return fold_reordered_to_4<order>(acc);
#endif
  return fold_to_4(acc);
}

template <Order order>
void put_in_order(const float* HWY_RESTRICT from, int64_t K, float* HWY_RESTRICT to) {
  const F4 f;
  for (int64_t k = 0; k < K; k += 16) {
    V4 a, b, c, d;
    if constexpr (order == Order::kFours) {
      hn::LoadInterleaved4(f, from + k, a, b, c, d);
    } else {
      hn::LoadInterleaved2(f, from + k, a, c);
      hn::LoadInterleaved2(f, from + k + 8, b, d);
    }
    hn::StoreU(a, f, to + k);
    hn::StoreU(b, f, to + k + 4);
    hn::StoreU(c, f, to + k + 8);
    hn::StoreU(d, f, to + k + 12);
  }
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
  for (int64_t k = 0; k < K; k += 32) {
    HWY_UNROLL(2)
    for (int h = 0; h < kHalves; ++h) {
      const int64_t at = k + h * kLanes;
      const V first = hn::Mul(hn::LoadU(f, a + at), hn::LoadU(f, b + at));
      acc[h] =
          hn::Add(acc[h], hn::MulAdd(hn::LoadU(f, a + at + 16), hn::LoadU(f, b + at + 16), first));
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

constexpr int64_t kFew = 6;         // from here on a panel pays
constexpr int64_t kWidest = 16384;  // bounds the reordered rows

// Areas of scratch memory: on the stack these would take most of a small one.
struct OrderedRows;
struct ScaledRows;
struct PanelSpace;

template <int n>
HWY_INLINE void clear(V* HWY_RESTRICT acc) {
  HWY_UNROLL(32)
  for (int i = 0; i < n; ++i) acc[i] = hn::Zero(F());
}

// 32 weights meet R rows of x at element k.
template <int R>
HWY_INLINE void add_block(const V* HWY_RESTRICT w, const float* const* x, int64_t k,
                          V* HWY_RESTRICT acc) {
  HWY_UNROLL(4)
  for (int i = 0; i < R; ++i) {
    HWY_UNROLL(2)
    for (int h = 0; h < kHalves; ++h) {
      const float* at = x[i] + k + h * kLanes;
      const V first = hn::Mul(hn::LoadU(F(), at), w[h]);
      const V pair = hn::MulAdd(hn::LoadU(F(), at + 16), w[h + kHalves], first);
      acc[i * kHalves + h] = hn::Add(acc[i * kHalves + h], pair);
    }
  }
}

// Weight row o meets R rows of x; sums[i] before the folds 2 and 1. One row at a time: the weights
// are then a single stream, which memory serves best.
template <class Row, int R>
HWY_INLINE void meet_row(const Weight& weight, const float* const* x, int64_t o, V4* sums) {
  const Row row(weight, o);
  V acc[R * kHalves];
  clear<R * kHalves>(acc);
  const int64_t n_blocks = weight.in() / 32;
  const auto meet = [&](int64_t b) HWY_ATTR {
    V w[kBlock];
    row.block(b, w);
    add_block<R>(w, x, 32 * b, acc);
  };
  constexpr int kLine = Row::kBlocksALine;
  int64_t b = 0;
  for (; b + kLine <= n_blocks; b += kLine) {
    hwy::Prefetch(static_cast<const uint8_t*>(row.at(b)) + kAhead);
    HWY_UNROLL(4)
    for (int i = 0; i < kLine; ++i) meet(b + i);
  }
  for (; b < n_blocks; ++b) meet(b);
  HWY_UNROLL(4)
  for (int i = 0; i < R; ++i) sums[i] = fold_ordered_to_4<Row::kOrder>(acc + i * kHalves);
}

// Rows [r, r + R) of x and 4 outputs from o.
template <class Row, int R>
HWY_INLINE void few_rows_4(const MatmulArgs& args, const float* const* x, int64_t r, int64_t o) {
  const int64_t n = std::min<int64_t>(4, args.o_end - o);
  V4 sums[4][R];
  for (int64_t j = 0; j < 4; ++j) {
    meet_row<Row, R>(*args.w, x + r, o + std::min(j, n - 1), sums[j]);
  }
  for (int i = 0; i < R; ++i) {
    store(args, (r + i) * args.out_stride + (o - args.o_begin),
          fold_four(sums[0][i], sums[1][i], sums[2][i], sums[3][i]), n);
  }
}

// to = from with the scales of the block of 32 outputs at o, and with the 2^8 by which E4M3 codes
// read as binary16 are too small.
void put_scales(const Weight& w, int64_t o, const float* HWY_RESTRICT from,
                float* HWY_RESTRICT to) {
  const F f;
  const uint8_t* scales = w.scale.row<const uint8_t>(o / 32);
  for (int64_t b = 0; b < w.in() / 32; ++b) {
    const auto scale = hn::BitCast(f, hn::Set(hn::RebindToUnsigned<F>(), (scales[b] + 8u) << 23));
    HWY_UNROLL(4)
    for (int64_t k = 32 * b; k < 32 * b + 32; k += kLanes) {
      hn::Store(hn::Mul(hn::Load(f, from + k), scale), f, to + k);
    }
  }
}

// The rows of x as the decoder Row wants them.
template <class Row>
class FewRows {
 public:
  explicit FewRows(const MatmulArgs& args) : args_(args) {
    const int64_t size = args.n_rows * args.w->in();
    if constexpr (Row::kOrder != Order::kNatural) ordered_ = scratch<OrderedRows>(size);
    if constexpr (Row::kScalesOnX) scaled_ = scratch<ScaledRows>(size);
    for (int64_t r = 0; r < args.n_rows; ++r) {
      x_[r] = row_of(args, r);
      if constexpr (Row::kOrder != Order::kNatural) {
        float* to = ordered_ + r * args.w->in();
        put_in_order<Row::kOrder>(x_[r], args.w->in(), to);
        x_[r] = to;
        if constexpr (Row::kScalesOnX) x_[r] = scaled_ + r * args.w->in();
      }
    }
  }

  // Before outputs from o: o_begin first, then in steps of 4.
  const float* const* at(int64_t o) {
    if constexpr (Row::kScalesOnX) {
      if (o / 32 != block_) {
        block_ = o / 32;
        const int64_t K = args_.w->in();
        for (int64_t r = 0; r < args_.n_rows; ++r) {
          put_scales(*args_.w, o, ordered_ + r * K, scaled_ + r * K);
        }
      }
    }
    return x_;
  }

 private:
  const MatmulArgs& args_;
  int64_t block_ = -1;
  const float* x_[kFew];
  float* ordered_ = nullptr;  // [n_rows, K], where the decoder has an order of its own
  float* scaled_ = nullptr;   // [n_rows, K], where it leaves the scales to x
};

template <class Row>
void few_rows(const MatmulArgs& args) {
  FewRows<Row> rows(args);
  for (int64_t o = args.o_begin; o < args.o_end; o += 4) {
    const float* const* x = rows.at(o);
    int64_t r = 0;
    for (; r + 4 <= args.n_rows; r += 4) few_rows_4<Row, 4>(args, x, r, o);
    if (r + 3 == args.n_rows) few_rows_4<Row, 3>(args, x, r, o);
    if (r + 2 == args.n_rows) few_rows_4<Row, 2>(args, x, r, o);
    if (r + 1 == args.n_rows) few_rows_4<Row, 1>(args, x, r, o);
  }
}

#if HWY_TARGET == HWY_AVX2
// Whether the scales of the weights may be multiplied into x: no product leaves the normal range on
// either way, so that both ways are exact.
bool scales_fit_x(const MatmulArgs& args) {
  constexpr int kScaleRange = 40;
  const Weight& w = *args.w;
  if (args.o_begin % 4 != 0) return false;
  for (int64_t o = args.o_begin / 32; o <= (args.o_end - 1) / 32; ++o) {
    const uint8_t* scales = w.scale.row<const uint8_t>(o);
    for (int64_t b = 0; b < w.in() / 32; ++b) {
      if (scales[b] < 127 - kScaleRange || scales[b] > 127 + kScaleRange) return false;
    }
  }
  const F f;
  const auto least = hn::Set(f, 0x1p-60f);
  const auto most = hn::Set(f, 0x1p60f);
  auto inside = hn::Eq(least, least);
  for (int64_t r = 0; r < args.n_rows; ++r) {
    const float* x = row_of(args, r);
    for (int64_t k = 0; k < w.in(); k += kLanes) {
      const auto v = hn::Abs(hn::LoadU(f, x + k));
      const auto zero = hn::Eq(v, hn::Zero(f));
      inside = hn::And(inside, hn::Or(zero, hn::And(hn::Ge(v, least), hn::Le(v, most))));
    }
  }
  return hn::AllTrue(f, inside);
}
#endif

// ---- Many rows: panels of weights are widened once and meet all rows
// ------------------------------

// Sizes in floats. Accumulators of a block of rows (192 KiB) and the panel (64 KiB) live in L2, the
// packed rows and four panel rows in L1.
constexpr int64_t kRowBlock = 96;
constexpr int64_t kPanel = 32;  // outputs
constexpr int64_t kDepth = 512;
// Neighbouring rows start in different halves of a cache line (AVX2): two loads a cycle from the
// same half of two lines collide.
constexpr int64_t kStride = kDepth + kLanes;
constexpr int64_t kPacked = 8;                   // rows of x at once
constexpr int kTileRows = kLanes == 16 ? 4 : 2;  // with both halves of a block in registers
constexpr int kTileOutputs = 4;

struct Workspace {
  alignas(64) float acc[kRowBlock * kPanel * 16];
  alignas(64) float panel[kPanel * kStride];
  alignas(64) float packed[kPacked * kStride];
};

// Where a panel stands in K.
struct Depth {
  int64_t k = 0;
  int64_t n = 0;
};

// acc of tile element i = row * kTileOutputs + output.
constexpr int64_t tile_at(int i) { return (i / kTileOutputs * kPanel + i % kTileOutputs) * 16; }

// Compilers turn a loaded vector with several uses into as many memory operands, and two loads a
// cycle are fewer than a tile of memory operands needs.
HWY_INLINE void keep_in_register(V& v) {
#if HWY_ARCH_X86 && !HWY_COMPILER_MSVC
  asm("" : "+v"(v.raw));
#endif
}

// As many virtual lanes as a vector holds: R rows of x meet 4 panel rows.
template <int R>
HWY_INLINE void tile_lanes(const float* HWY_RESTRICT x, const float* HWY_RESTRICT w, Depth depth,
                           float* HWY_RESTRICT acc) {
  const F f;
  V a[R * kTileOutputs];
  HWY_UNROLL(16)
  for (int i = 0; i < R * kTileOutputs; ++i) a[i] = hn::Zero(f);
  if (depth.k > 0) {
    HWY_UNROLL(16)
    for (int i = 0; i < R * kTileOutputs; ++i) a[i] = hn::Load(f, acc + tile_at(i));
  }
  for (int64_t k = 0; k < depth.n; k += 32) {
    V first[R];
    V second[R];
    HWY_UNROLL(4)
    for (int i = 0; i < R; ++i) {
      first[i] = hn::Load(f, x + i * kStride + k);
      second[i] = hn::Load(f, x + i * kStride + k + 16);
    }
    HWY_UNROLL(4)
    for (int j = 0; j < kTileOutputs; ++j) {
      V w_first = hn::Load(f, w + j * kStride + k);
      V w_second = hn::Load(f, w + j * kStride + k + 16);
      keep_in_register(w_first);
      keep_in_register(w_second);
      HWY_UNROLL(4)
      for (int i = 0; i < R; ++i) {
        const V pair = hn::MulAdd(second[i], w_second, hn::Mul(first[i], w_first));
        a[i * kTileOutputs + j] = hn::Add(a[i * kTileOutputs + j], pair);
      }
    }
  }
  HWY_UNROLL(16)
  for (int i = 0; i < R * kTileOutputs; ++i) hn::Store(a[i], f, acc + tile_at(i));
}

template <int R>
HWY_INLINE void tile(const float* x, const float* w, Depth depth, float* acc) {
  for (int h = 0; h < 16; h += kLanes) tile_lanes<R>(x + h, w + h, depth, acc + h);
}

HWY_INLINE void tile_of(int64_t n, const float* x, const float* w, Depth depth, float* acc) {
#if HWY_TARGET == HWY_AVX3
  if (n == 4) return tile<4>(x, w, depth, acc);
  if (n == 3) return tile<3>(x, w, depth, acc);
#endif
  if (n == 2) return tile<2>(x, w, depth, acc);
  tile<1>(x, w, depth, acc);
}

// A block of results: rows [r, r + n_rows) and outputs [o, o + n).
struct Block {
  int64_t r = 0;
  int64_t n_rows = 0;  // <= kRowBlock
  int64_t o = 0;
  int64_t n = 0;  // <= kPanel
};

template <class Row>
void widen_panel(const Weight& w, const Block& block, Depth depth, float* panel) {
  for (int64_t j = 0; j < block.n; ++j) {
    const Row row(w, block.o + j);
    for (int64_t b = 0; b < depth.n / 32; ++b) {
      V values[kBlock];
      row.block(depth.k / 32 + b, values);
      HWY_UNROLL(4)
      for (int v = 0; v < kBlock; ++v) {
        hn::Store(values[v], F(), panel + j * kStride + 32 * b + v * kLanes);
      }
    }
  }
  // Rows that fill up the last tile; their sums are not read.
  const int64_t filled = (block.n + kTileOutputs - 1) / kTileOutputs * kTileOutputs;
  std::fill(panel + block.n * kStride, panel + filled * kStride, 0.0f);
}

// The panel meets all rows of the block.
void add_panel(const MatmulArgs& args, const Block& block, Depth depth, Workspace& space) {
  for (int64_t i = 0; i < block.n_rows; i += kPacked) {
    const int64_t n_packed = std::min(kPacked, block.n_rows - i);
    for (int64_t p = 0; p < n_packed; ++p) {
      std::memcpy(space.packed + p * kStride, row_of(args, block.r + i + p) + depth.k,
                  static_cast<size_t>(depth.n) * sizeof(float));
    }
    for (int64_t j = 0; j < block.n; j += kTileOutputs) {
      for (int64_t p = 0; p < n_packed; p += kTileRows) {
        tile_of(std::min<int64_t>(kTileRows, n_packed - p), space.packed + p * kStride,
                space.panel + j * kStride, depth, space.acc + ((i + p) * kPanel + j) * 16);
      }
    }
  }
}

void fold_block(const MatmulArgs& args, const Block& block, const Workspace& space) {
  for (int64_t i = 0; i < block.n_rows; ++i) {
    for (int64_t j = 0; j < block.n; j += 4) {
      const auto sum = [&](int s) HWY_ATTR {
        const float* lanes = space.acc + (i * kPanel + j + s) * 16;
        const V acc[2] = {hn::Load(F(), lanes), hn::Load(F(), lanes + 16 - kLanes)};
        return fold_to_4(acc);
      };
      store(args, (block.r + i) * args.out_stride + (block.o + j - args.o_begin),
            fold_four(sum(0), sum(1), sum(2), sum(3)), std::min<int64_t>(4, block.n - j));
    }
  }
}

template <class Row>
void many_rows_block(const MatmulArgs& args, const Block& block, Workspace& space) {
  const int64_t K = args.w->in();
  for (int64_t k = 0; k < K; k += kDepth) {
    const Depth depth{k, std::min(kDepth, K - k)};
    widen_panel<Row>(*args.w, block, depth, space.panel);
    add_panel(args, block, depth, space);
  }
  fold_block(args, block, space);
}

template <class Row>
void many_rows(const MatmulArgs& args) {
  Workspace& space = *scratch<PanelSpace, Workspace>(1);
  for (int64_t r = 0; r < args.n_rows; r += kRowBlock) {
    for (int64_t o = args.o_begin; o < args.o_end; o += kPanel) {
      const Block block{r, std::min(kRowBlock, args.n_rows - r), o,
                        std::min(kPanel, args.o_end - o)};
      many_rows_block<Row>(args, block, space);
    }
  }
}

void matmul_vector(const MatmulArgs& args) {
  if (args.o_begin >= args.o_end) return;
  const int largest_scale = largest_fp8_scale(args);
  if (args.w->in() % 32 != 0 || largest_scale > kLargestScale) return matmul_scalar(args);
  const bool few = args.n_rows <= kFew;
#if HWY_TARGET == HWY_AVX2
  const bool narrow = args.w->in() <= kWidest;
#endif
  switch (args.w->format) {
    case WeightFormat::kBf16:
      return few ? few_rows<Bf16Row>(args) : many_rows<Bf16Row>(args);
    case WeightFormat::kF32:
      return few ? few_rows<F32Row>(args) : many_rows<F32Row>(args);
    case WeightFormat::kFp8Block32:
#if HWY_TARGET == HWY_AVX2
      if (few && narrow && scales_fit_x(args)) return few_rows<Fp8EvenOddRow>(args);
#endif
      return few ? few_rows<Fp8Row>(args) : many_rows<Fp8Row>(args);
    case WeightFormat::kFp4Row32:
#if HWY_TARGET == HWY_AVX2
      if (few && narrow) return few_rows<Fp4FoursRow>(args);
#endif
      return few ? few_rows<Fp4Row>(args) : many_rows<Fp4Row>(args);
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
