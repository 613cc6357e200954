#include "ops/cpu/mhc.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/dot.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/norm.h"
#include "ops/cpu/probing.h"
#include "ops/cpu/scratch.h"

namespace fathom {
namespace cpu {
namespace {

// Channels that all streams work on before the next ones, so that the sums stay in registers.
constexpr int64_t kStrip = 32;

// kStreams is n where the compiler should unroll, 0 for any n.
template <int64_t kStreams>
void expand(CpuPath path, const MhcExpandRow& args) {
  const MhcExpandRow a = args;
  on_path(
      path, [=]() __attribute__((always_inline)) {
        const int64_t n = kStreams > 0 ? kStreams : a.n;
        for (int64_t d = 0; d < a.hidden; d += kStrip) {
          float x[kMaxStreams][kStrip];
          for (int64_t j = 0; j < n; ++j) {
            for (int64_t i = 0; i < kStrip; ++i) {
              x[j][i] = bf16_to_float(a.residual[j * a.hidden + d + i]);
            }
          }
          for (int64_t k = 0; k < n; ++k) {
            float sum[kStrip];
            for (int64_t i = 0; i < kStrip; ++i) sum[i] = a.comb[k] * x[0][i];
            for (int64_t j = 1; j < n; ++j) {
              const float weight = a.comb[j * n + k];
              for (int64_t i = 0; i < kStrip; ++i) sum[i] += weight * x[j][i];
            }
            const float post = a.post[k];
            Bf16* out = a.residual + k * a.hidden + d;
            for (int64_t i = 0; i < kStrip; ++i) {
              out[i] = float_to_bf16(post * bf16_to_float(a.y[d + i]) + sum[i]);
            }
          }
        }
      });
}

void add_eps(float* values, int64_t n, float eps) {
  for (int64_t i = 0; i < n; ++i) values[i] += eps;
}

void normalise_rows(float* comb, int64_t n, float eps) {
  for (int64_t j = 0; j < n; ++j) {
    float sum = comb[j * n];
    for (int64_t k = 1; k < n; ++k) sum += comb[j * n + k];
    for (int64_t k = 0; k < n; ++k) comb[j * n + k] /= sum + eps;
  }
}

void normalise_columns(float* comb, int64_t n, float eps) {
  for (int64_t k = 0; k < n; ++k) {
    float sum = comb[k];
    for (int64_t j = 1; j < n; ++j) sum += comb[j * n + k];
    for (int64_t j = 0; j < n; ++j) comb[j * n + k] /= sum + eps;
  }
}

}  // namespace

void mhc_expand_row(CpuPath path, const MhcExpandRow& args) {
  if (args.n == 4) return expand<4>(path, args);
  if (args.n == 2) return expand<2>(path, args);
  expand<0>(path, args);
}

void sinkhorn(float* comb, int64_t n, int iters, float eps) {
  for (int64_t j = 0; j < n; ++j) {
    float* row = comb + j * n;
    const float top = *std::max_element(row, row + n);
    float sum = 0;
    for (int64_t k = 0; k < n; ++k) {
      row[k] = exp_f32(row[k] - top);
      sum += row[k];
    }
    for (int64_t k = 0; k < n; ++k) row[k] /= sum;
  }
  add_eps(comb, n * n, eps);
  normalise_columns(comb, n, eps);
  for (int i = 1; i < iters; ++i) {
    normalise_rows(comb, n, eps);
    normalise_columns(comb, n, eps);
  }
}

void mhc_coefficients_row(const MhcCoefficientRow& a) {
  const int64_t n = a.n;
  for (int64_t j = 0; j < n; ++j) {
    a.pre[j] = sigmoid(a.mix[j] * a.scale[0] + a.base[j]) + a.eps;
    a.post[j] = 2.0f * sigmoid(a.mix[n + j] * a.scale[1] + a.base[n + j]);
  }
  for (int64_t i = 0; i < n * n; ++i) {
    a.comb[i] = a.mix[2 * n + i] * a.scale[2] + a.base[2 * n + i];
  }
  sinkhorn(a.comb, n, a.iters, a.eps);
}

void mhc_collapse_row(CpuPath path, const MhcCollapseRow& args) {
  const MhcCollapseRow a = args;
  on_path(
      path, [=]() __attribute__((always_inline)) {
        for (int64_t d = 0; d < a.hidden; d += kStrip) {
          float sum[kStrip];
          for (int64_t i = 0; i < kStrip; ++i) sum[i] = a.pre[0] * bf16_to_float(a.residual[d + i]);
          for (int64_t s = 1; s < a.n; ++s) {
            const float weight = a.pre[s];
            const Bf16* x = a.residual + s * a.hidden + d;
            for (int64_t i = 0; i < kStrip; ++i) sum[i] += weight * bf16_to_float(x[i]);
          }
          for (int64_t i = 0; i < kStrip; ++i) a.u[d + i] = round_to_bf16(sum[i]);
        }
      });
}

namespace {

// One word over rows [begin, end). `mix` and `u` hold the rows from `base_row` on.
struct MhcPass {
  CpuPath path;
  const MhcStepArgs& args;
  int64_t base_row = 0;
  float* mix = nullptr;  // [rows, (2 + n) n]
  float* u = nullptr;    // [rows, D]

  int64_t n() const { return args.residual.dim(1); }
  int64_t hidden() const { return args.residual.dim(2); }
  int64_t n_mix() const { return (2 + n()) * n(); }
  Bf16* residual(int64_t row) const { return args.residual.row<Bf16>(row); }

  void expand(int64_t begin, int64_t end) const {
    for (int64_t row = begin; row < end; ++row) {
      mhc_expand_row(path, {residual(row), args.y.row<Bf16>(row), args.expand.post.row<float>(row),
                            args.expand.comb.row<float>(row), n(), hidden()});
    }
  }

  // The projection comes first and is then multiplied by the statistic.
  void predict_mix(int64_t begin, int64_t end) const {
    struct Input;
    const int64_t width = n() * hidden();
    float* x = scratch<Input>((end - begin) * width);
    for (int64_t row = begin; row < end; ++row) {
      widen(path, residual(row), width, x + (row - begin) * width);
    }
    float* out = mix + (begin - base_row) * n_mix();
    const Weight fn = {.data = args.site.fn, .format = WeightFormat::kF32};
    matmul(path, {.out = out,
                  .out_stride = n_mix(),
                  .x = x,
                  .n_rows = end - begin,
                  .w = &fn,
                  .o_begin = 0,
                  .o_end = n_mix()});
    for (int64_t i = 0; i < end - begin; ++i) {
      const float* row = x + i * width;
      const float mean = dot(path, row, row, width) / static_cast<float>(width);
      const float r = rsqrt(mean + args.norm_eps);
      for (int64_t o = 0; o < n_mix(); ++o) out[i * n_mix() + o] *= r;
    }
  }

  void coefficients(int64_t begin, int64_t end) const {
    for (int64_t row = begin; row < end; ++row) {
      mhc_coefficients_row({.pre = args.predicted.pre.row<float>(row),
                            .post = args.predicted.post.row<float>(row),
                            .comb = args.predicted.comb.row<float>(row),
                            .mix = mix + (row - base_row) * n_mix(),
                            .scale = args.site.scale.as<float>(),
                            .base = args.site.base.as<float>(),
                            .n = n(),
                            .iters = args.sinkhorn_iters,
                            .eps = args.hc_eps});
    }
  }

  void collapse(int64_t begin, int64_t end) const {
    for (int64_t row = begin; row < end; ++row) {
      mhc_collapse_row(path, {u + (row - base_row) * hidden(), residual(row),
                              args.pre.row<float>(row), n(), hidden()});
    }
  }

  void norm(int64_t begin, int64_t end) const {
    for (int64_t row = begin; row < end; ++row) {
      float* values = u + (row - base_row) * hidden();
      rms_norm_row(path, {values, values, args.norm.as<Bf16>(), hidden(), args.norm_eps});
      store_activation(path, values, row, args.x);
    }
  }
};

// All steps on a few rows at a time, so that a row of the residual is in cache between them.
void run_fused(ThreadPool& pool, CpuPath path, const MhcStepArgs& args) {
  constexpr int64_t kTile = 8;  // rows that share one walk over fn
  const int64_t n_rows = args.residual.dim(0);
  const int64_t n_tiles = (n_rows + kTile - 1) / kTile;
  pool.parallel_for(n_tiles, 1, [&](int64_t first, int64_t last) {
    struct Mix;
    struct Collapsed;
    MhcPass pass = {path, args};
    pass.mix = scratch<Mix>(kTile * pass.n_mix());
    pass.u = scratch<Collapsed>(kTile * pass.hidden());
    for (int64_t tile = first; tile < last; ++tile) {
      const int64_t begin = tile * kTile;
      const int64_t end = std::min(begin + kTile, n_rows);
      pass.base_row = begin;
      if (!args.y.empty()) pass.expand(begin, end);
      if (!args.site.fn.empty()) {
        pass.predict_mix(begin, end);
        pass.coefficients(begin, end);
      }
      if (!args.norm.empty()) {
        pass.collapse(begin, end);
        pass.norm(begin, end);
      }
    }
  });
}

// Step after step over all rows, each shown before the next one reads it.
void run_probed(Ops& ops, CpuPath path, const MhcStepArgs& args) {
  const int64_t n_rows = args.residual.dim(0);
  MhcPass pass = {path, args};
  const Buffer mix(n_rows * pass.n_mix() * dtype_bytes(DType::kF32));
  const Buffer u(n_rows * pass.hidden() * dtype_bytes(DType::kF32));
  pass.mix = reinterpret_cast<float*>(mix.data());
  pass.u = reinterpret_cast<float*>(u.data());
  if (!args.y.empty()) pass.expand(0, n_rows);
  if (!args.site.fn.empty()) {
    pass.predict_mix(0, n_rows);
    show_f32(ops, "mix", pass.mix, {n_rows, pass.n_mix()});
    pass.coefficients(0, n_rows);
    ops.show("pre", args.predicted.pre);
    ops.show("post", args.predicted.post);
    ops.show("comb", args.predicted.comb);
  }
  if (!args.norm.empty()) {
    pass.collapse(0, n_rows);
    show_rounded(ops, "u", pass.u, {n_rows, pass.hidden()});
    pass.norm(0, n_rows);
  }
}

}  // namespace
}  // namespace cpu

void CpuOps::do_mhc_step(const MhcStepArgs& args) {
  FATHOM_CHECK(args.residual.dim(1) <= cpu::kMaxStreams);
  FATHOM_CHECK(args.residual.dim(2) % 32 == 0);
  if (probing()) return cpu::run_probed(*this, path_, args);
  cpu::run_fused(pool_, path_, args);
}

}  // namespace fathom
