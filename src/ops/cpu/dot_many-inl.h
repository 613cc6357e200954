// Many rows of x: panels of weights are widened once and meet all rows.
// Once for each target (hwy/foreach_target.h).

#if defined(FATHOM_OPS_CPU_DOT_MANY_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FATHOM_OPS_CPU_DOT_MANY_INL_H
#undef FATHOM_OPS_CPU_DOT_MANY_INL_H
#else
#define FATHOM_OPS_CPU_DOT_MANY_INL_H
#endif

#include <cstring>

#include "hwy/highway.h"
#include "ops/cpu/dot_fold-inl.h"
#include "ops/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace fathom::cpu {
namespace HWY_NAMESPACE {
namespace {

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

struct PanelSpace;  // area of scratch memory, as those of few rows

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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fathom::cpu
HWY_AFTER_NAMESPACE();

#endif
