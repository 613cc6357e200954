#pragma once

// Weights: the tensors of the text backbone by their role, as views into a checkpoint that outlives
// them. Names and shapes are those of model/inventory.h, which the checkpoint must have passed.

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/layer_plan.h"
#include "ops/words.h"

namespace fathom {

struct CompressorWeights {
  Weight wkv;     // [dh, D]
  Weight wgate;   // [dh, D], ratio > 1 only
  Tensor norm;    // [dh]
  Weight wk;      // [di, dh] index key
  Tensor k_norm;  // [di]
};

struct IndexerWeights {
  Weight wq_b;          // [Hi di, rq]
  Weight weights_proj;  // [Hi, D]
};

struct EngramWeights {
  Tensor table;     // [R, w] e4m3
  Tensor scales;    // [R, w/32] e8m0
  Weight wkv;       // [(n + 1) D, C w]
  Tensor q_weight;  // [n, D]
  Tensor k_weight;  // [n, D]
};

struct LayerWeights {
  MhcSite hc_attn;
  MhcSite hc_ffn;
  Tensor attn_norm;              // [D]
  Tensor ffn_norm;               // [D]
  Weight wq_a;                   // [rq, D]
  Tensor q_norm;                 // [rq]
  Weight wq_b;                   // [H dh, rq]
  Weight wkv;                    // [dh, D]
  Tensor kv_norm;                // [dh]
  Tensor sink;                   // [H] f32
  Weight wo_a;                   // [G ro, H dh / G]
  Weight wo_b;                   // [D, G ro]
  CompressorWeights compressor;  // of kv sources
  IndexerWeights indexer;        // of index sources
  EngramWeights engram;          // of Engram layers
  Weight gate;                   // [E, D]
  Tensor bias;                   // [E] f32
  Tensor bias_image;             // [E] f32
  std::vector<ExpertWeights> experts;
  ExpertWeights shared;
};

class Weights {
 public:
  // The checkpoint must have every tensor of expected_tensors(config), as it expects them.
  Weights(const ModelPlan& plan, int64_t n_experts, const Checkpoint& checkpoint);

  Tensor embed;  // [V, D]
  Weight head;   // [V, D]
  Tensor norm;   // [D]
  std::vector<LayerWeights> layers;

  // Stored bytes that one decoded token reads: everything but the embedding, the Engram tables and
  // the experts that are not chosen.
  int64_t bytes_per_token(int64_t experts_per_token) const;

 private:
  Tensor tensor(const std::string& name) const;
  Weight weight(const std::string& name, WeightFormat format) const;
  Weight bf16(const std::string& name) const;
  ExpertWeights expert(const std::string& prefix, WeightFormat format) const;
  LayerWeights layer(const LayerPlan& plan, int64_t n_experts) const;

  const Checkpoint& checkpoint_;
};

}  // namespace fathom
