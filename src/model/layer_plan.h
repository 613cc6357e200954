#pragma once

// The plan of a model: what each layer does, decided once from the configuration. Every later
// question ("which cache does layer 27 read?") is a field here, never a rule repeated elsewhere.
// Source: spec/backbone.md 1.4.

#include <string>
#include <vector>

#include "model/config.h"
#include "tensor/kv_spec.h"

namespace fathom {

enum class CsaMode : uint8_t {
  kSwa,      // the sliding window alone
  kFull,     // owns a compressor with its caches, and an indexer
  kReindex,  // reads another layer's caches with an indexer of its own
  kReuse,    // reads another layer's caches through another layer's top-k list
};

enum class PoolUse : uint8_t {
  kNone,
  kSource,      // builds the candidate pool; its own top-k is over all visible entries
  kRestricted,  // its top-k is over the candidate pool
};

struct LayerPlan {
  int layer = 0;
  bool decoder = false;  // the half that prefill may skip
  CsaMode mode = CsaMode::kSwa;
  int ratio = 0;          // source tokens an entry; 0: no global attention
  int kv_source = -1;     // the layer whose main and index caches are read; -1: none
  int index_source = -1;  // the layer whose top-k list is read; -1: none
  PoolUse pool = PoolUse::kNone;
  double rope_theta = 0;  // of every rotation in this layer
  bool yarn = false;      // RopeScaling applies to them
  int engram = -1;        // place in engram_layer_ids, or -1
  bool tap = false;       // the drafter reads the residual that enters this layer

  bool owns_kv() const { return kv_source == layer; }
  bool owns_indexer() const { return index_source == layer; }
};

struct ModelPlan {
  std::vector<LayerPlan> layers;
  // Layers [0, n_encoder_layers) run over every prompt token. The decoder starts at the last kv
  // source if that has ratio 1, so that its global entries depend on the encoder alone; otherwise
  // there is no decoder half and this is the number of layers.
  int n_encoder_layers = 0;
  KvGeometry kv;
};

// The layer whose caches, or whose top-k list, a layer with global attention reads: the closest
// source at or before it; -1 where there is none. Ids of sources ascend.
int64_t kv_source_of(const TextConfig& text, int64_t layer);
int64_t index_source_of(const TextConfig& text, int64_t layer);

// The config must have passed validate_config.
ModelPlan make_plan(const ModelConfig& config);

// What `kv` comes to for sequences of at most `context` positions, which fill no more of a larger
// sliding window. Its rings lose whole blocks of the list that attention walks (ops/words.h,
// AttendArgs), never one that holds a window slot, so that every bit stays; rings of the released
// size, for which kernels are made, are left as they are.
KvGeometry kv_for_context(KvGeometry kv, int64_t context);

// A table of the plan, one line a layer, for people and for comparison with a stored text.
std::string plan_text(const ModelPlan& plan);

const char* mode_name(CsaMode mode);  // "SWA", "Full", "Reindex", "Reuse"
const char* pool_name(PoolUse pool);  // "-", "source", "restricted"

}  // namespace fathom
