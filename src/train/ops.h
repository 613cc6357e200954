#pragma once

// The fused words of the differentiable definition. Each has one meaning, written with ATen in
// reference.cc for any floating type (bf16 tensors are widened to fp32 and rounded once at the
// points of spec/backbone.md 3.12), and a CUDA body with its own backward pass in fused.cc, used
// for bf16 tensors on a GPU. All rows are tokens of equal-length sequences, N = batch * length.

#include <ATen/ATen.h>

namespace fathom::train {

using at::Tensor;

// Forces the ATen form on a GPU too (self-check).
void set_reference_ops(bool on);

// bf16 -> fp32; fp32 and double stay.
Tensor widen(const Tensor& x);

// x [N, k] by w [m, k] -> [N, m] in the type of x; linear_f32 leaves the result unrounded.
Tensor apply_weight(const Tensor& x, const Tensor& w);
Tensor linear_f32(const Tensor& x, const Tensor& w);
// x [G, N, k] by w [G, m, k] -> [G, N, m], group by group.
Tensor apply_groups(const Tensor& x, const Tensor& w);
// Batched product in the type of a, with fp32 sums.
Tensor product(const Tensor& a, const Tensor& b);

Tensor rms_norm(const Tensor& x, const Tensor& w);

// Where the rows of a rotation stand: row r at position (r % length) * step.
struct Placement {
  Tensor table;  // [positions, rope / 2, 2] cos, sin; fp32 (or double)
  int64_t length = 0;
  int64_t step = 1;
};
// x [rows, heads, dim]; the last rope channels turn (spec/backbone.md 2.5).
Tensor rotate(const Tensor& x, const Placement& where, bool inverse);

struct HcParams {
  Tensor fn, scale, base;  // [24, 4 D], [3], [24] fp32
  double eps = 0;
  int64_t iterations = 0;
};
struct HcOut {
  Tensor streams;  // the input streams, to be used by later readers
  Tensor x;        // [N, D] normed collapse
  Tensor pre;      // [N, 4], for the next site
  Tensor mix;      // [N, 20]: post, then comb[source][destination]
};
// Coefficients of a site and its input (spec/backbone.md 3.1); `pre` is the incoming pre-mix.
HcOut hc_read(const Tensor& streams, const Tensor& pre, const HcParams& params, const Tensor& norm);
// The final collapse: norm of sum_s pre[s] * streams[s].
Tensor hc_collapse(const Tensor& streams, const Tensor& pre, const Tensor& norm);
Tensor hc_write(const Tensor& streams, const Tensor& y, const Tensor& mix);

// Adds gate * value to each stream (spec/engram.md 7); kv [N, 5 D], gain [4, D] fp32.
Tensor engram_add(const Tensor& streams, const Tensor& kv, const Tensor& gain);

// Routing weights [N, E], zero where not chosen (spec/backbone.md 3.10); load [E] counts tokens.
Tensor route(const Tensor& logits, const Tensor& bias, int64_t top, double factor, Tensor& load);

// gates, values [G, m, d] fp32 -> [G, d]: softmax over the m tokens of a group, channel by channel.
Tensor pool_group(const Tensor& gates, const Tensor& values);

// gu [N, 2 (E + 1) I]: all gates, then all ups, the shared expert last; -> [N, (E + 1) I].
Tensor swiglu(const Tensor& gu, const Tensor& wt, int64_t width, double limit);

// sum_i weight[i] * nll[i] of the head's logits, in chunks; nll [N] out, not differentiable.
Tensor cross_entropy(const Tensor& x, const Tensor& head, const Tensor& target,
                     const Tensor& weight, Tensor& nll);

struct AttendShape {
  int64_t length = 0, window = 0, ratio = 0, entries = 0;
  double scale = 0;
};
struct AttendOut {
  Tensor out;  // [N, H, d]
  Tensor lse;  // [N, H] fp32, log of the denominator
};
// The compressed rows that queries see beside their window.
struct GlobalKeys {
  Tensor rows;      // [batch * entries, d], or undefined: none
  Tensor selected;  // as made by index_select, or undefined: all visible entries
};
// q [N, H, d]; kv [N, d] window rows; sink [H] (spec/backbone.md 3.8).
AttendOut attend(const Tensor& q, const Tensor& kv, const GlobalKeys& global, const Tensor& sink,
                 const AttendShape& shape);

struct Selection {
  Tensor entries;  // [N, G] bool, or [N, G / 8] bytes of bits on the fused path
  Tensor pool;     // the same form; undefined unless asked for
};
struct SelectShape {
  int64_t length = 0, ratio = 0, top = 0;
  int64_t pool_blocks = 0, block_size = 0;  // pool_blocks 0: no new pool
  // Every step of the score rounded to bf16, as the released reference does (canonical words only).
  bool round_scores = false;
};
// q [N, Hi, di], k [batch * G, di], weights [N, Hi] fp32; pool restricts (spec/backbone.md 3.7).
// No gradient.
Selection index_select(const Tensor& q, const Tensor& k, const Tensor& weights, const Tensor& pool,
                       const SelectShape& shape);
// The bool form of a selection.
Tensor selection_bits(const Tensor& entries, int64_t count);

// The words whose result depends on the order of a sum or on the last bit of exp and its kin: as
// they stand above, in whatever order is fast, or canonical (canonical.h).
struct Words {
  decltype(&train::apply_weight) apply_weight = train::apply_weight;
  decltype(&train::apply_groups) apply_groups = train::apply_groups;
  decltype(&train::linear_f32) linear_f32 = train::linear_f32;
  decltype(&train::rms_norm) rms_norm = train::rms_norm;
  decltype(&train::hc_read) hc_read = train::hc_read;
  decltype(&train::hc_collapse) hc_collapse = train::hc_collapse;
  decltype(&train::hc_write) hc_write = train::hc_write;
  decltype(&train::engram_add) engram_add = train::engram_add;
  decltype(&train::route) route = train::route;
  decltype(&train::pool_group) pool_group = train::pool_group;
  decltype(&train::index_select) index_select = train::index_select;
};
inline constexpr Words kFastWords;

// Masks: entries visible to each position of one sequence, [T, G] bool; window keys [T, T] bool.
Tensor visible_mask(int64_t length, int64_t entries, int64_t ratio, const at::Device& device);
Tensor window_mask(int64_t length, int64_t window, const at::Device& device);

// Top-k of masked scores [.., G] (-inf: not there) with ties to the smaller id, as bool.
Tensor top_mask(const Tensor& scores, int64_t top);
// Pool of the best blocks with the newest visible block pinned; scores [T, G] of one sequence.
Tensor pool_mask(const Tensor& scores, const SelectShape& shape);

}  // namespace fathom::train
