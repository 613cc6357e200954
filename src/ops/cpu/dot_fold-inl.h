// Folds of the virtual lanes to sums, and where sums are stored.
// Once for each target (hwy/foreach_target.h).

#if defined(FATHOM_OPS_CPU_DOT_FOLD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FATHOM_OPS_CPU_DOT_FOLD_INL_H
#undef FATHOM_OPS_CPU_DOT_FOLD_INL_H
#else
#define FATHOM_OPS_CPU_DOT_FOLD_INL_H
#endif

#include "hwy/highway.h"
#include "ops/cpu/dot_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fathom::cpu {
namespace HWY_NAMESPACE {
namespace {

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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fathom::cpu
HWY_AFTER_NAMESPACE();

#endif
