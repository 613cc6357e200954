#pragma once

// The arguments of every word of the vocabulary (ops/ops.h). Shapes stand behind each member;
// output members come first. Legend: N rows of the step, S sequences, D hidden_size, n hc_mult, H
// heads, dh head_dim, dr rotary width, Hi/di indexer heads and width, K index_topk, E routed
// experts, k experts a row, C Engram columns. Everything not marked "in/out" is written whole.
//
// Numerics: spec/backbone.md sections 2 and 3, summation trees: docs/design.md section 7. A row's
// bits depend on nothing but the row's own inputs and its sequence's state.

#include <cstdint>
#include <span>

#include "ops/rows.h"
#include "tensor/kv_view.h"
#include "tensor/tensor.h"

namespace fathom {

// Rotation tables of one kind (plain or YaRN) for the rows of a step. spec/backbone.md 2.5.
struct Rope {
  Tensor inv_freq;  // [dr/2] f32
  Tensor cos;       // [N, dr/2] f32, at the position of each row
  Tensor sin;       // [N, dr/2] f32
};

struct RopeArgs {
  Tensor cos;       // [N, dr/2] f32 out
  Tensor sin;       // [N, dr/2] f32 out
  Tensor inv_freq;  // [dr/2] f32
  const Rows* rows = nullptr;
};

// X[t][s] = table[ids[t]] for every stream s. spec/backbone.md 3.0
struct EmbedArgs {
  Tensor residual;  // [N, n, D] bf16 out
  Tensor ids;       // [N] i32, inside the table
  Tensor table;     // [V, D] bf16
};

// out[i] = in[rows[i]]: whole rows of any dtype.
struct GatherRowsArgs {
  Tensor out;                     // [M, ...] out
  Tensor in;                      // [N, ...] dense, the same dtype and row shape
  std::span<const int64_t> rows;  // M
};

// Mixing coefficients of one hyper-connection site.
struct MhcCoefficients {
  Tensor pre;   // [N, n] f32
  Tensor post;  // [N, n] f32
  Tensor comb;  // [N, n, n] f32; comb[j][k]: source stream j, destination stream k
};

struct MhcSite {
  Tensor fn;     // [(2 + n) n, n D] f32
  Tensor scale;  // [3] f32
  Tensor base;   // [(2 + n) n] f32
};

// The whole of single-pass mHC between two sub-layers, each residual element read and written once.
// Steps, each left out where its inputs are empty:
//   1. expand    X[k] = bf(post_k y + sum_j comb[j][k] X[j])             where y is given
//   2. predict   out = Hc(X; site)                                       where site.fn is given
//   3. collapse  u = bf(sum_s pre[s] X[s]),  x = RMSNorm(u; norm), A8    where norm is given
// spec/backbone.md 3.1. Bytes a row: 4 n D (read, write) + 2 D (y) + 3 D (x); flops 2 (2+n) n n D.
struct MhcStepArgs {
  Tensor residual;            // [N, n, D] bf16 in/out
  MhcCoefficients predicted;  // out
  Activation x;               // [N, D] out
  Tensor y;                   // [N, D] bf16
  MhcCoefficients expand;     // post and comb of the site whose sub-layer made y
  MhcSite site;
  Tensor pre;   // [N, n] f32, predicted one site earlier
  Tensor norm;  // [D] bf16
  int sinkhorn_iters = 20;
  float hc_eps = 1e-6f;
  float norm_eps = 1e-20f;
};

// y = RMSNorm(x; weight), with its A8 form. spec/backbone.md 2.4
struct RmsNormArgs {
  Activation out;  // [N, W]
  Tensor x;        // [N, W] bf16
  Tensor weight;   // [W] bf16
  float eps = 1e-20f;
};

// out = x W^T. FP8 and FP4 weights take the A8 form of x, BF16 and F32 weights its bf16 values.
// spec/backbone.md 2.3
struct LinearArgs {
  Tensor out;    // [N, O] bf16 or f32
  Activation x;  // [N, I]
  Weight w;      // [O, I]
};

// wo_a: group g of the input meets rows [g R, (g+1) R) of the weight, which is taken at bf16 value;
// the input is not quantised. The output carries its A8 form for wo_b. spec/backbone.md 3.9
struct GroupedLinearArgs {
  Activation out;  // [N, G R]
  Tensor x;        // [N, G I] bf16
  Weight w;        // [G R, I]
  int64_t groups = 1;
};

// Packed window rows of the step, before they enter the ring.
struct WindowRows {
  Tensor payload;  // [N, dh] e4m3
  Tensor scales;   // [N, dh/32] e8m0
};

// kv -> RMSNorm -> RoPE -> SWA8. spec/backbone.md 3.4
struct WindowKvArgs {
  WindowRows out;
  Tensor kv;      // [N, dh] bf16, output of wkv
  Tensor weight;  // [dh] bf16, kv_norm
  Rope rope;
  float eps = 1e-20f;
};

// Moves each sequence's last min(W, n_rows) rows into its ring; position p goes to row p mod W.
struct WindowCommitArgs {
  SlotView window;
  WindowRows rows_kv;
  const Rows* rows = nullptr;
};

// Compressor, main KV entry and index key of every group that the step completes (and that is not
// below write_from), written into the caches; the unfinished group's (a, z) goes to `remainder`.
// spec/backbone.md 3.5, 3.6 (indexer K), 4.7. Ratio 1 has no wgate and no remainder.
struct CompressArgs {
  KvView main;         // written
  KvView index;        // written
  SlotView remainder;  // in/out, ratio > 1: rows 2i, 2i+1 are a, z of the group's token i
  Activation x;        // [N, D] attention input
  Weight wkv;          // [dh, D] bf16
  Weight wgate;        // [dh, D] bf16
  Tensor norm;         // [dh] bf16
  Weight wk;           // [di, dh] bf16
  Tensor k_norm;       // [di] bf16
  Tensor inv_freq;     // [dr/2] f32; an entry g rotates at position g * ratio
  const Rows* rows = nullptr;
  float eps = 1e-20f;
};

enum class IndexScores : uint8_t { kF32, kBf16 };

// RoPE and IDX4 of the indexer query, scores against the visible packed keys, best K entries; where
// asked, the candidate pool. No score matrix of N x context is ever stored.
// Ties go to the smaller id. spec/backbone.md 3.6, 3.7. Bytes a row: 68 E (or 68 pool); flops 2 E
// Hi di.
struct IndexSelectArgs {
  Tensor topk;      // [N, K] i32 out, ascending, padded with kNoEntry
  Tensor pool_out;  // [N, P] i32 out, kept block ids ascending, padded; empty: no pool is built
  Tensor pool_in;   // [N, P] i32; empty: all visible entries compete
  Tensor q;         // [N, Hi di] bf16, output of wq_b, not rotated
  Tensor weights;   // [N, Hi] bf16, output of weights_proj, not scaled
  KvView keys;
  Rope rope;
  const Rows* rows = nullptr;
  int64_t n_heads = 0;     // Hi
  int64_t block_size = 8;  // entries a candidate block
  IndexScores scores = IndexScores::kF32;
};

// Query RoPE, attention over window and chosen entries with sink, inverse RoPE.
// The list of a row: W window slots (ascending positions, holes last), then K slots (ascending ids,
// holes last), walked in blocks of 64 slots with a running maximum. spec/backbone.md 3.3, 3.8
struct AttendArgs {
  Tensor o;            // [N, H dh] bf16 out
  Tensor q;            // [N, H dh] bf16, output of wq_b, not rotated
  Tensor sink;         // [H] f32
  SlotView window;     // positions before the step
  WindowRows rows_kv;  // positions of the step
  KvView global;       // not used where topk is empty
  Tensor topk;         // [N, K] i32; empty: window only
  Rope rope;
  const Rows* rows = nullptr;
};

// Router. spec/backbone.md 3.10
struct RouteArgs {
  Tensor ids;         // [N, k] i32 out, by decreasing biased score, ties to the smaller id
  Tensor weights;     // [N, k] f32 out, normalised and scaled
  Activation x;       // [N, D]
  Weight gate;        // [E, D] bf16
  Tensor bias;        // [E] f32
  Tensor bias_image;  // [E] f32 (bias_vl)
  Tensor image_mask;  // [N] u8, 1 where bias_image applies; empty: nowhere
  float scale = 1.0f;
};

struct ExpertWeights {
  Weight w1;  // [If, D] gate
  Weight w3;  // [If, D] up
  Weight w2;  // [D, If] down
};

// y = sum of the chosen experts in increasing id, then the shared one. spec/backbone.md 3.10
struct ExpertsArgs {
  Tensor y;                                // [N, D] bf16 out
  Activation x;                            // [N, D]
  Tensor ids;                              // [N, k] i32
  Tensor weights;                          // [N, k] f32
  std::span<const ExpertWeights> experts;  // E
  ExpertWeights shared;
  float swiglu_limit = 0;
};

// Row numbers of the hashed table from the canonical ids of the last positions, the row's own first
// (ops/engram_rows.h). spec/engram.md 5
struct EngramRowsArgs {
  Tensor rows;         // [N, C] i64 out
  Tensor lookback;     // [N, L] i32
  Tensor primes;       // [C] i64
  Tensor offsets;      // [C] i64
  Tensor multipliers;  // [L] i64
  int32_t pad = 0;     // canonical id of the padding token
};

// The id of each row's largest logit, ties to the smaller id; a NaN is never larger. What the next
// step reads moves on with it: the row's look-back begins with the id's canonical one, and the log
// holds it in place `count`, which grows by one.
struct GreedyArgs {
  Tensor ids;        // [N] i32 out
  Tensor logits;     // [N, V] f32
  Tensor lookback;   // [N, L] i32 in/out; empty: none is kept
  Tensor canonical;  // [V] i32, with lookback
  Tensor log;        // [N, T] i32 in/out; empty: none is kept. A full log stays as it is.
  Tensor count;      // [N] i64 in/out, with log
};

// Rows of the hashed table, concatenated in column order, with their A8 form. spec/engram.md 6
struct EngramGatherArgs {
  Activation out;  // [N, C w]
  Tensor rows;     // [N, C] i64, inside the table
  Tensor table;    // [R, w] e4m3
  Tensor scales;   // [R, w/32] e8m0
};

// X[s] = bf(X[s] + gate_s value). spec/backbone.md 3.2 (g), spec/engram.md 7
struct EngramMixArgs {
  Tensor residual;  // [N, n, D] bf16 in/out
  Tensor kv;        // [N, (n + 1) D] bf16: a key a stream, then the value
  Tensor q_weight;  // [n, D] bf16
  Tensor k_weight;  // [n, D] bf16
  Tensor dead;      // [N] u8, 1 where the gate is 0; empty: nowhere
  float eps = 1e-20f;
};

}  // namespace fathom
