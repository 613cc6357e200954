#pragma once

// ModelConfig: config.json, verbatim. Member names are the JSON keys; what a key means stands in
// spec/backbone.md section 1 (text), spec/vision.md and spec/dspark.md.
//
// Two spellings are read: the nested one of config.json (text_config, vision_config) and the flat
// one of the reference program's inference/config.json (dim, n_layers, ...), which lacks model
// types, token ids, block sizes, scale and expert formats, norm_topk_prob and topk_method where its
// program knows one value alone: these are the defaults below. A config that came out of
// parse_config or read_config has passed validate_config: everything derived from it (layer plan,
// inventory, hash constants) relies on that and does not check again.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

struct RopeScaling {
  std::string rope_type = "yarn";
  double factor = 0;
  double beta_fast = 0;
  double beta_slow = 0;
  int64_t original_max_position_embeddings = 0;

  bool operator==(const RopeScaling&) const = default;
};

struct QuantizationConfig {
  std::string quant_method = "fp8";
  std::string activation_scheme = "dynamic";
  std::vector<int64_t> weight_block_size = {32, 32};
  std::string scale_fmt = "ue8m0";
  std::string expert_dtype = "fp4";

  bool operator==(const QuantizationConfig&) const = default;
};

struct TextConfig {
  std::string model_type = "deepseek_v41_text";
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t moe_intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 1;
  int64_t head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t q_lora_rank = 0;
  int64_t o_lora_rank = 0;
  int64_t o_groups = 0;
  std::string hidden_act = "silu";
  double swiglu_limit = 0;
  double rms_norm_eps = 0;
  bool attention_bias = false;
  double attention_dropout = 0;
  double initializer_range = 0.02;
  bool use_cache = true;
  bool tie_word_embeddings = false;
  int64_t max_position_embeddings = 0;
  double rope_theta = 0;
  RopeScaling rope_scaling;
  int64_t n_routed_experts = 0;
  int64_t n_shared_experts = 1;
  int64_t num_experts_per_tok = 0;
  std::string scoring_func = "sqrtsoftplus";
  std::string topk_method = "noaux_tc";
  bool norm_topk_prob = true;
  double routed_scaling_factor = 0;
  int64_t sliding_window = 0;            // includes the current token
  std::vector<int64_t> compress_ratios;  // one a layer, then a 0 for each drafter layer
  double compress_rope_theta = 0;
  std::vector<int64_t> kv_source_layer_ids;
  std::vector<int64_t> index_source_layer_ids;
  int64_t index_n_heads = 0;
  int64_t index_head_dim = 0;
  int64_t index_topk = 0;
  int64_t candidate_source_layer_id = -1;  // -1 (null): no candidate pool
  int64_t candidate_topk_blocks = 0;
  int64_t candidate_block_size = 0;
  int64_t hc_mult = 0;
  int64_t hc_sinkhorn_iters = 0;
  double hc_eps = 0;
  std::vector<int64_t> engram_layer_ids;
  std::vector<int64_t> engram_num_embeddings;  // table rows a layer: the sum of its primes
  int64_t engram_max_ngram_size = 0;
  int64_t engram_vocab_size = 0;  // where the search for primes starts
  int64_t engram_n_heads = 0;
  int64_t engram_head_dim = 0;
  int64_t engram_pad_token_id = 0;
  int64_t engram_compressed_vocab_size = 0;
  int64_t num_nextn_predict_layers = 0;  // drafter layers mtp.*; 0: no drafter
  int64_t dspark_block_size = 0;
  int64_t dspark_noise_token_id = 0;
  std::vector<int64_t> dspark_target_layer_ids;
  int64_t dspark_markov_rank = 0;
  int64_t dspark_n_routed_experts = 0;
  int64_t dspark_num_experts_per_tok = 0;

  bool operator==(const TextConfig&) const = default;
};

struct VisionConfig {
  std::string model_type = "deepseek_v41_vision";
  int64_t num_hidden_layers = 0;  // 0: a text-only model
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t intermediate_size = 0;
  int64_t patch_size = 0;
  double rope_theta = 0;
  int64_t downsample_ratio = 0;
  int64_t max_image_tokens = 0;
  int64_t min_pixels = 0;
  std::optional<double> max_wh_ratio;

  bool operator==(const VisionConfig&) const = default;
};

struct ModelConfig {
  std::vector<std::string> architectures = {"DeepseekV41ForCausalLM"};
  std::string model_type = "deepseek_v41";
  std::string dtype = "bfloat16";
  std::string transformers_version = "5.6.0";
  int64_t bos_token_id = 0;
  int64_t eos_token_id = 1;
  int64_t pad_token_id = 2;
  int64_t image_token_id = 0;
  QuantizationConfig quantization_config;
  TextConfig text_config;
  VisionConfig vision_config;

  bool operator==(const ModelConfig&) const = default;
};

struct ConfigFile {
  ModelConfig config;
  std::vector<std::string> warnings;  // one line each: keys that are not known
};

// Reads and validates. `where` names the source in messages, for example the path. An error names
// the key, what was wanted and what was found.
Result<ConfigFile> parse_config(std::string_view json, const std::string& where);
Result<ConfigFile> read_config(const std::string& path);

// Refuses values that no engine for this architecture can run, and impossible plans: sources out
// of order or of another ratio than their readers, widths that do not fill quantisation blocks,
// top-k above the candidate pool, table sizes that are not the sum of the derived primes.
Result<void> validate_config(const ModelConfig& config, const std::string& where);

// The released schema: keys in file order, two spaces of indent, final newline. parse_config
// gives the same config back.
std::string config_to_json(const ModelConfig& config);

}  // namespace fathom
