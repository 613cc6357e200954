#pragma once

// The sums of the exact numerics on plain rows, in the one order that docs/design.md section 7 and
// spec/backbone.md 3.8 state. Written from those pages and not from the engine's kernels, so that
// the two can be compared bit for bit. All rows are contiguous fp32; no call allocates; calls on
// different outputs may run at once.

#include <cstdint>

namespace fathom::train::rows {

inline constexpr int64_t kBlock = 32;  // a width is a multiple of this; the rest is zeros

// The pair tree of two rows: 16 lanes; of each block of 32, blocks in order, lane j takes
// lane_j += fma(a[j + 16], b[j + 16], a[j] * b[j]); lanes j and j + 8 are added, then j and j + 4,
// j + 2, j + 1.
float pair_tree(const float* a, const float* b, int64_t width);

// out[r * m + o] = pair_tree(a row r, b row o) for all r and for o in [begin, end).
struct Products {
  float* out = nullptr;      // [n, m]
  const float* a = nullptr;  // [n, width]
  int64_t n = 0;
  const float* b = nullptr;  // [m, width]
  int64_t m = 0;
  int64_t width = 0;
};
void products(const Products& p, int64_t begin, int64_t end);

// out[e] = sum over heads h, in order, of w[h] * max(0, dots[h * n + e]), each term fused into the
// sum (spec/backbone.md 3.7 without rounding of scores).
void index_scores(float* out, const float* dots, const float* w, int64_t heads, int64_t n);

// One query row (spec/backbone.md 3.8). The list is walked in blocks of 64 slots; -1 is a hole.
// Probabilities of a block sum in 16 lanes (lane j: slots j, j + 16, j + 32, j + 48) folded as
// above; the numerator takes bf(p) times the vector slot after slot, fused.
struct Attend {
  float* out = nullptr;            // [heads, width], rounded to bf16
  const float* q = nullptr;        // [heads, width]
  const float* vectors = nullptr;  // [.., width], keys and values at once
  const int64_t* slots = nullptr;  // [n_slots] rows of `vectors`
  int64_t n_slots = 0;
  const float* sink = nullptr;  // [heads]
  int64_t heads = 0;
  int64_t width = 0;
  float scale = 1;
};
void attend(const Attend& a);

}  // namespace fathom::train::rows
