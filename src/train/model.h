#pragma once

// The differentiable definition of the text backbone (spec/backbone.md 3) for any configuration.
// Two numerics: training (fused words, dense masked attention, all experts evaluated with a zero
// weight where not chosen) and exact (every rounding point and quantiser of 3.12 and the canonical
// order of every sum, canonical.h), which is held to the golden data and to the engine. The exact
// numerics run on a CPU, without a gradient.

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/engram_hash.h"
#include "model/layer_plan.h"
#include "train/ops.h"
#include "train/params.h"

namespace fathom::train {

struct Numerics {
  bool exact = false;        // the rounding points of 3.12; implies cache and activations
  bool cache = false;        // KV4, IDX4 and SWA8 simulated
  bool activations = false;  // A8 simulated at the input of every FP8 and FP4 linear
  bool dense = false;        // attend to all visible entries
  bool pool = true;          // candidate pool in force
  bool wide_sums = false;    // products summed in fp64 instead (exact only)
  bool score_bf16 = false;   // index scores rounded as the released reference does (exact only)
  bool index_loss = false;   // gather the indexer's KL
  bool index_stats = false;  // and its recall and covered mass
  double pool_weight = 0;    // of the KL between a restricted layer's target and its pool's scores
};

struct Measures {
  Tensor index_kl;  // sum over index layers; undefined without index_loss
  // Per index layer: KL, recall@k of the head-summed attention, attention mass covered (no grad).
  // Per restricted layer: the part of its best entries that the candidate pool holds.
  std::map<int64_t, Tensor> kl, recall, mass, pool;
};

// What passes from layer to layer.
struct State {
  int64_t batch = 0, length = 0;
  Tensor tokens;  // [N] int64
  Tensor mapped;  // [N] int64, compressed ids
  Tensor streams, pre;
  struct Source {
    Tensor entries;    // [batch * G, head_dim]
    Tensor index_key;  // [batch * G, index_head_dim]
    int64_t count = 0;
  };
  std::map<int64_t, Source> sources;
  Tensor selected, pool;
  Tensor pool_scores;  // [batch, S, G] of the layer that opened the pool, at the sampled positions
  // The indexer whose group is running.
  struct Pending {
    int64_t layer = -1;
    Tensor scores;  // [batch, S, G] with gradient, at the sampled positions
    Tensor target;  // [batch, S, G], sum over heads and layers
  } pending;
};

class Model {
 public:
  using Tap = std::function<void(const std::string& name, const Tensor& value)>;
  using Hook = std::function<void(int64_t layer, State& state)>;

  // `map` [vocab] int64: the compressed id of each token.
  Model(const ModelConfig& config, Params& params, const Tensor& map);

  // tokens [batch, length] int64 on the device -> normed final state [N, D].
  Tensor run(const Tensor& tokens, const Numerics& numerics, Measures* measures = nullptr);
  // fp32 logits [N, vocab], in the numerics of the last run.
  Tensor logits(const Tensor& x) const;

  const ModelConfig& model_config() const { return model_config_; }
  const TextConfig& config() const { return config_; }
  const std::vector<LayerPlan>& plans() const { return plans_; }

  Tensor& route_bias() { return route_bias_; }  // [layers, experts] fp32, not trained by gradient
  Tensor& load() { return load_; }              // [layers, experts], tokens routed since zeroed

  // Values by the names of golden/README.md (exact numerics), and access before each layer.
  void set_tap(Tap tap) { tap_ = std::move(tap); }
  void set_hook(Hook hook) { hook_ = std::move(hook); }

 private:
  struct Query {
    Tensor x, qr, q;  // attention input, normed low rank, rotated heads [N, H, d]
  };

  void show(const std::string& name, const Tensor& value) const;
  Tensor weight(const char* name) const { return params_.get(name, layer_); }
  Tensor project(const Tensor& x, const char* name) const;  // FP8 or FP4 linear
  Tensor quantised(const Tensor& x) const;                  // A8 where simulated
  Placement place(const LayerPlan& plan, int64_t step) const;
  HcOut site(const std::string& name, const char* norm, const Tensor& streams,
             const Tensor& pre) const;

  Tensor engram_rows(const State& s, const LayerPlan& plan) const;
  void engram(State& s, const LayerPlan& plan);
  Tensor attention(State& s, const LayerPlan& plan, const Tensor& x);
  void compress(State& s, const LayerPlan& plan, const Tensor& x);
  void select(State& s, const LayerPlan& plan, const Query& query);
  Tensor index_query(const LayerPlan& plan, const Query& query);
  void add_target(State& s, const LayerPlan& plan, const Tensor& q, const AttendOut& out);
  void close_group(State& s);
  Tensor pool_of(const Tensor& scores) const;
  Tensor output(const Tensor& o) const;
  Tensor moe(const Tensor& x);
  Tensor moe_exact(const Tensor& x, const Tensor& wt) const;
  Tensor expert(const Tensor& in, const Tensor& wt, int64_t e) const;

  const ModelConfig model_config_;
  const TextConfig& config_;  // of model_config_
  Params& params_;
  std::vector<LayerPlan> plans_;
  std::vector<EngramHash> hashes_;
  Tensor map_, route_bias_, load_;
  Tensor plain_table_, scaled_table_;  // cos/sin of the two rotations
  Numerics numerics_;
  const Words* words_ = &kFastWords;  // of these numerics
  Measures* measures_ = nullptr;
  int64_t layer_ = 0;
  int64_t state_batch_ = 1;
  Tap tap_;
  Hook hook_;
};

// cos/sin [positions, rope / 2, 2] (spec/backbone.md 2.5); scaled: the compressed theta with YaRN.
Tensor rope_table(const TextConfig& config, bool scaled, int64_t positions);

struct ExactKeys : GlobalKeys {
  int64_t top = 0;  // most entries that `selected` holds for one query
};
// Canonical attention of spec/backbone.md 3.8 on bf16 rows, one sequence after the other.
Tensor attend_exact(const Tensor& q, const Tensor& kv, const ExactKeys& global, const Tensor& sink,
                    const AttendShape& shape);

}  // namespace fathom::train
