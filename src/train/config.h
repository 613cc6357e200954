#pragma once

// The text configuration of a V4.1 model (spec/backbone.md 1.1) and the layer plan (1.4), as the
// differentiable definition needs them. Fields carry the names of config.json.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace fathom::train {

struct Config {
  int64_t vocab_size = 0, hidden_size = 0, moe_intermediate_size = 0, num_hidden_layers = 0;
  int64_t num_attention_heads = 0, head_dim = 0, qk_rope_head_dim = 0, q_lora_rank = 0;
  int64_t o_lora_rank = 0, o_groups = 0, n_routed_experts = 0, num_experts_per_tok = 0;
  int64_t sliding_window = 0, index_n_heads = 0, index_head_dim = 0, index_topk = 0;
  int64_t candidate_source_layer_id = 0, candidate_topk_blocks = 0, candidate_block_size = 0;
  int64_t hc_mult = 0, hc_sinkhorn_iters = 0;
  int64_t engram_max_ngram_size = 0, engram_vocab_size = 0, engram_n_heads = 0, engram_head_dim = 0;
  int64_t engram_pad_token_id = 0, engram_compressed_vocab_size = 0;
  int64_t rope_original = 0, max_position_embeddings = 0;
  double rope_theta = 0, compress_rope_theta = 0, rope_factor = 1, rope_beta_fast = 32;
  double rope_beta_slow = 1, routed_scaling_factor = 1, swiglu_limit = 0, rms_norm_eps = 0;
  double hc_eps = 0;
  std::vector<int64_t> compress_ratios, kv_source_layer_ids, index_source_layer_ids;
  std::vector<int64_t> engram_layer_ids, engram_num_embeddings;

  int64_t engram_columns() const { return (engram_max_ngram_size - 1) * engram_n_heads; }
};

enum class LayerMode { kWindow, kFull, kReindex, kReuse };

struct LayerPlan {
  LayerMode mode = LayerMode::kWindow;
  int64_t ratio = 0;
  int64_t kv_source = -1;     // layer that owns the main entries and index keys; -1: none
  int64_t index_source = -1;  // layer whose selection this one uses; -1: none
  int64_t engram = -1;        // index into engram_layer_ids; -1: none
  bool pooled = false;        // its own selection is restricted to the candidate pool
};

// Reads `text_config` of a config.json. An absent or non-positive field is an error that names it.
Result<Config> parse_config(const std::string& json_text);
Result<Config> load_config(const std::string& path);

// Spec/backbone.md 1.4: one plan per layer; errors name the layer.
Result<std::vector<LayerPlan>> plan_layers(const Config& config);

// The whole config.json of a text-only model with these values.
std::string config_json(const Config& config);

}  // namespace fathom::train
