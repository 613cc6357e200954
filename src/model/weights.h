#pragma once

// Weights: the tensors of the text backbone by their role, as views into a checkpoint that outlives
// them. Names and shapes are those of model/inventory.h, which the checkpoint must have passed.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/layer_plan.h"
#include "ops/words.h"
#include "tensor/memory.h"

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

// The bytes of all tensors of a checkpoint where a backend wants them: in the checkpoint itself, or
// copied once into one piece of a device's memory.
class WeightMemory {
 public:
  // `progress(done, all)` in bytes; may be null.
  using Progress = std::function<void(int64_t done, int64_t all)>;

  // memory null or of the host: nothing is copied. kExhausted where the weights do not fit.
  static Result<WeightMemory> make(const Checkpoint& checkpoint, DeviceMemory* memory,
                                   const Progress& progress);

  Tensor tensor(const std::string& name) const;  // must exist

  // Bytes that make() takes of a device.
  static int64_t bytes(const Checkpoint& checkpoint);

 private:
  explicit WeightMemory(const Checkpoint& checkpoint) : checkpoint_(&checkpoint) {}

  const Checkpoint* checkpoint_;
  Buffer copy_;
  std::map<std::string, Tensor, std::less<>> copied_;
};

class Weights {
 public:
  // The checkpoint must have every tensor of expected_tensors(config), as it expects them.
  Weights(const ModelPlan& plan, int64_t n_experts, WeightMemory memory);

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

  WeightMemory memory_;
};

}  // namespace fathom
