#pragma once

// Workspace: every buffer of a step, made once for a largest number of rows; a step uses the first
// rows of each. Step lifetime: nothing in it outlives the step that wrote it, but for what the
// functions of Model return. Thread rule: one step at a time.

#include <vector>

#include "base/result.h"
#include "model/layer_plan.h"
#include "ops/words.h"
#include "tensor/memory.h"

namespace fathom {

struct WorkspaceLimits {
  int64_t max_rows = 0;        // of a step
  int64_t max_logit_rows = 0;  // whose logits a step may ask for
  int64_t context = 0;         // positions of a sequence; 0: no bound is known
};

class Workspace {
 public:
  // In the memory of the backend that will run the steps.
  static Result<Workspace> make(const ModelConfig& config, const WorkspaceLimits& limits,
                                DeviceMemory& memory);
  static int64_t bytes(const ModelConfig& config, const WorkspaceLimits& limits);

  const WorkspaceLimits& limits() const { return limits_; }

  // Legend as in ops/words.h; N is max_rows, R is max_logit_rows.
  Tensor ids;                // [N] i32
  Tensor image_mask;         // [N] u8
  Tensor residual;           // [N, n, D]
  Tensor first_pre;          // [N, n]: (1, 0, ...), the mix before layer 0
  MhcCoefficients hc_attn;   // of the layer's attention site
  MhcCoefficients hc_ffn;    // of the layer's FFN site
  Activation x;              // [N, D] input of a sub-layer
  Tensor y;                  // [N, D] output of a sub-layer
  Tensor wq_a;               // [N, rq]
  Activation qr;             // [N, rq]
  Tensor q;                  // [N, H dh]
  Tensor kv;                 // [N, dh]
  WindowRows window_rows;    // [N, dh]
  Tensor index_q;            // [N, Hi di]
  Tensor index_weights;      // [N, Hi]
  Tensor topk;               // [N, K], no more than the context has entries
  Tensor pool;               // [N, P], likewise
  Tensor o;                  // [N, H dh]
  Activation o_lora;         // [N, G ro]
  Tensor expert_ids;         // [N, k]
  Tensor expert_weights;     // [N, k]
  Tensor lookback;           // [N, L] i32 canonical ids, the row's own first
  Tensor engram_rows;        // [N, C] i64
  Activation engram_lookup;  // [N, C w]
  Tensor engram_kv;          // [N, (n + 1) D]
  // Constants of the table of each Engram layer (ops/words.h, EngramRowsArgs).
  struct EngramTable {
    Tensor primes;
    Tensor offsets;
    Tensor multipliers;
  };
  std::vector<EngramTable> engram_tables;
  Rope rope_plain;
  Rope rope_yarn;
  Activation head_x;  // [R, D]
  Tensor logits;      // [R, V]

 private:
  Workspace(const ModelConfig& config, const WorkspaceLimits& limits, Arena arena);

  void write_constants(const ModelConfig& config, DeviceMemory& memory);

  WorkspaceLimits limits_;
  Arena arena_;
};

// The first n rows of a workspace buffer.
inline Tensor first(const Tensor& t, int64_t n) { return t.rows(0, n); }
inline Activation first(const Activation& a, int64_t n) { return a.rows(0, n); }
inline WindowRows first(const WindowRows& w, int64_t n) {
  return {.payload = w.payload.rows(0, n), .scales = w.scales.rows(0, n)};
}
inline MhcCoefficients first(const MhcCoefficients& c, int64_t n) {
  return {.pre = c.pre.rows(0, n), .post = c.post.rows(0, n), .comb = c.comb.rows(0, n)};
}
inline Rope first(const Rope& r, int64_t n) {
  return {.inv_freq = r.inv_freq, .cos = r.cos.rows(0, n), .sin = r.sin.rows(0, n)};
}

}  // namespace fathom
