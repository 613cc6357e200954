// Decoders: 32 weights of a row with their scale, in every stored form.
// Once for each target (hwy/foreach_target.h).

#if defined(FATHOM_OPS_CPU_DOT_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FATHOM_OPS_CPU_DOT_ROWS_INL_H
#undef FATHOM_OPS_CPU_DOT_ROWS_INL_H
#else
#define FATHOM_OPS_CPU_DOT_ROWS_INL_H
#endif

#include "hwy/highway.h"
#include "ops/cpu/dot_tables.h"

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

// A row of FP4 codes, two a byte, with a scale for each block.
struct Fp4Codes {
  static constexpr bool kScalesOnX = false;
  static constexpr int kBlocksALine = 4;
  const uint8_t* codes;
  const uint8_t* scales;

  Fp4Codes(const Weight& w, int64_t o)
      : codes(w.data.row<const uint8_t>(o)), scales(w.scale.row<const uint8_t>(o)) {}

  const void* at(int64_t b) const { return codes + 16 * b; }
};

#if HWY_TARGET == HWY_AVX3
// A table of 16 floats fills a vector, and codes choose from it: each 32-bit lane takes the four
// bytes with its code and shifts that to the bottom.
struct Fp4Row : Fp4Codes {
  using Fp4Codes::Fp4Codes;
  static constexpr Order kOrder = Order::kNatural;

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
struct Fp4Row : Fp4Codes {
  using Fp4Codes::Fp4Codes;
  static constexpr Order kOrder = Order::kNatural;

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
struct Fp4FoursRow : Fp4Codes {
  using Fp4Codes::Fp4Codes;
  static constexpr Order kOrder = Order::kFours;

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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fathom::cpu
HWY_AFTER_NAMESPACE();

#endif
