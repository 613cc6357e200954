// Few rows of x: weights are decoded in registers.
// Once for each target (hwy/foreach_target.h).

#if defined(FATHOM_OPS_CPU_DOT_FEW_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FATHOM_OPS_CPU_DOT_FEW_INL_H
#undef FATHOM_OPS_CPU_DOT_FEW_INL_H
#else
#define FATHOM_OPS_CPU_DOT_FEW_INL_H
#endif

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "ops/cpu/dot_fold-inl.h"
#include "ops/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace fathom::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kFew = 6;         // from here on a panel pays
constexpr int64_t kWidest = 16384;  // bounds the reordered rows

// Areas of scratch memory: on the stack these would take most of a small one.
struct OrderedRows;
struct ScaledRows;

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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fathom::cpu
HWY_AFTER_NAMESPACE();

#endif
