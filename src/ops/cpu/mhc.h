#pragma once

// The arithmetic of single-pass mHC, row by row. Source: spec/backbone.md 3.1.
// n streams, D channels; residual rows are bf16 [n, D].

#include <cstdint>

#include "ops/backends.h"
#include "tensor/codecs.h"

namespace fathom::cpu {

inline constexpr int64_t kMaxStreams = 8;

// X[k] = bf(post[k] y + sum_j comb[j][k] X[j]) in place: products and sums are rounded one by one,
// the sum over j in order, the term of y added last.
struct MhcExpandRow {
  Bf16* residual = nullptr;
  const Bf16* y = nullptr;
  const float* post = nullptr;
  const float* comb = nullptr;
  int64_t n = 0;
  int64_t hidden = 0;
};
void mhc_expand_row(CpuPath path, const MhcExpandRow& args);

// Coefficients from the raw mix [(2 + n) n]: sigmoids, then `iters` Sinkhorn iterations of which
// the softmax is the first row normalisation; the last operation normalises columns.
struct MhcCoefficientRow {
  float* pre = nullptr;   // [n]
  float* post = nullptr;  // [n]
  float* comb = nullptr;  // [n, n]
  const float* mix = nullptr;
  const float* scale = nullptr;  // [3]
  const float* base = nullptr;   // [(2 + n) n]
  int64_t n = 0;
  int iters = 20;
  float eps = 1e-6f;
};
void mhc_coefficients_row(const MhcCoefficientRow& args);
// comb in place: softmax over k, then the rest of the iterations.
void sinkhorn(float* comb, int64_t n, int iters, float eps);

// u = bf(sum_s pre[s] X[s]) as fp32; products and sums rounded one by one, in order of s.
struct MhcCollapseRow {
  float* u = nullptr;  // [D]
  const Bf16* residual = nullptr;
  const float* pre = nullptr;
  int64_t n = 0;
  int64_t hidden = 0;
};
void mhc_collapse_row(CpuPath path, const MhcCollapseRow& args);

}  // namespace fathom::cpu
