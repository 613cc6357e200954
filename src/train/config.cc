#include "train/config.h"

#include <algorithm>
#include <cstdio>

#include "base/file.h"
#include "train/json.h"

namespace fathom::train {

namespace {

struct IntField {
  const char* name;
  int64_t Config::*member;
};

constexpr IntField kIntFields[] = {
    {"vocab_size", &Config::vocab_size},
    {"hidden_size", &Config::hidden_size},
    {"moe_intermediate_size", &Config::moe_intermediate_size},
    {"num_hidden_layers", &Config::num_hidden_layers},
    {"num_attention_heads", &Config::num_attention_heads},
    {"head_dim", &Config::head_dim},
    {"qk_rope_head_dim", &Config::qk_rope_head_dim},
    {"q_lora_rank", &Config::q_lora_rank},
    {"o_lora_rank", &Config::o_lora_rank},
    {"o_groups", &Config::o_groups},
    {"n_routed_experts", &Config::n_routed_experts},
    {"num_experts_per_tok", &Config::num_experts_per_tok},
    {"sliding_window", &Config::sliding_window},
    {"index_n_heads", &Config::index_n_heads},
    {"index_head_dim", &Config::index_head_dim},
    {"index_topk", &Config::index_topk},
    {"candidate_source_layer_id", &Config::candidate_source_layer_id},
    {"candidate_topk_blocks", &Config::candidate_topk_blocks},
    {"candidate_block_size", &Config::candidate_block_size},
    {"hc_mult", &Config::hc_mult},
    {"hc_sinkhorn_iters", &Config::hc_sinkhorn_iters},
    {"engram_max_ngram_size", &Config::engram_max_ngram_size},
    {"engram_vocab_size", &Config::engram_vocab_size},
    {"engram_n_heads", &Config::engram_n_heads},
    {"engram_head_dim", &Config::engram_head_dim},
    {"engram_pad_token_id", &Config::engram_pad_token_id},
    {"engram_compressed_vocab_size", &Config::engram_compressed_vocab_size},
    {"max_position_embeddings", &Config::max_position_embeddings},
};

struct RealField {
  const char* name;
  double Config::*member;
};

constexpr RealField kRealFields[] = {
    {"rope_theta", &Config::rope_theta},
    {"compress_rope_theta", &Config::compress_rope_theta},
    {"routed_scaling_factor", &Config::routed_scaling_factor},
    {"swiglu_limit", &Config::swiglu_limit},
    {"rms_norm_eps", &Config::rms_norm_eps},
    {"hc_eps", &Config::hc_eps},
};

struct ListField {
  const char* name;
  std::vector<int64_t> Config::*member;
};

constexpr ListField kListFields[] = {
    {"compress_ratios", &Config::compress_ratios},
    {"kv_source_layer_ids", &Config::kv_source_layer_ids},
    {"index_source_layer_ids", &Config::index_source_layer_ids},
    {"engram_layer_ids", &Config::engram_layer_ids},
    {"engram_num_embeddings", &Config::engram_num_embeddings},
};

bool contains(const std::vector<int64_t>& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::string number(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.17g", value);
  char shorter[32];
  std::snprintf(shorter, sizeof shorter, "%.6g", value);
  return std::stod(shorter) == value ? shorter : buffer;
}

std::string list_text(const std::vector<int64_t>& list) {
  std::string out = "[";
  for (size_t i = 0; i < list.size(); ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(list[i]);
  }
  return out + "]";
}

Result<void> read_rope(const Json& text, Config& config) {
  const Json* rope = text.find("rope_scaling");
  if (rope == nullptr || !rope->is_object()) {
    return invalid("config: text_config.rope_scaling is absent, an object was expected");
  }
  const auto real = [&](const char* name, double& out) {
    if (const Json* field = rope->find(name); field != nullptr) {
      out = field->as_double(out);
    }
  };
  double original = 0;
  real("factor", config.rope_factor);
  real("beta_fast", config.rope_beta_fast);
  real("beta_slow", config.rope_beta_slow);
  real("original_max_position_embeddings", original);
  config.rope_original = static_cast<int64_t>(original);
  return {};
}

}  // namespace

Result<Config> parse_config(const std::string& json_text) {
  FATHOM_ASSIGN_OR_RETURN(const Json json, Json::parse(json_text));
  const Json* text = json.find("text_config");
  if (text == nullptr) {
    return invalid("config: text_config is absent");
  }
  Config config;
  for (const IntField& field : kIntFields) {
    const Json* value = text->find(field.name);
    if (value == nullptr || value->as_int(-1) < 0) {
      return invalid(std::string("config: text_config.") + field.name + " is absent or negative");
    }
    config.*field.member = value->as_int();
  }
  for (const RealField& field : kRealFields) {
    const Json* value = text->find(field.name);
    if (value == nullptr || value->as_double(-1) < 0) {
      return invalid(std::string("config: text_config.") + field.name + " is absent or negative");
    }
    config.*field.member = value->as_double();
  }
  for (const ListField& field : kListFields) {
    const Json* value = text->find(field.name);
    if (value == nullptr || value->kind() != Json::Kind::kArray) {
      return invalid(std::string("config: text_config.") + field.name + " is no list");
    }
    for (const Json& item : value->items()) {
      (config.*field.member).push_back(item.as_int());
    }
  }
  FATHOM_RETURN_IF_ERROR(read_rope(*text, config));
  FATHOM_RETURN_IF_ERROR(plan_layers(config));
  return config;
}

Result<Config> load_config(const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  auto config = parse_config(text);
  if (!config) {
    return invalid(path + ": " + config.error().message);
  }
  return config;
}

Result<std::vector<LayerPlan>> plan_layers(const Config& config) {
  const auto layers = config.num_hidden_layers;
  if (static_cast<int64_t>(config.compress_ratios.size()) < layers) {
    return invalid("config: compress_ratios has fewer entries than num_hidden_layers");
  }
  std::vector<LayerPlan> plans(layers);
  int64_t kv_source = -1;
  int64_t index_source = -1;
  for (int64_t l = 0; l < layers; ++l) {
    LayerPlan& plan = plans[l];
    plan.ratio = config.compress_ratios[l];
    for (size_t i = 0; i < config.engram_layer_ids.size(); ++i) {
      plan.engram = config.engram_layer_ids[i] == l ? static_cast<int64_t>(i) : plan.engram;
    }
    if (plan.ratio == 0) {
      continue;
    }
    const bool owns_kv = contains(config.kv_source_layer_ids, l);
    const bool owns_index = contains(config.index_source_layer_ids, l);
    kv_source = owns_kv ? l : kv_source;
    index_source = owns_index ? l : index_source;
    if (kv_source < 0 || index_source < kv_source || (owns_kv && !owns_index)) {
      return invalid("config: layer " + std::to_string(l) + " has no source of entries or indices");
    }
    if (config.compress_ratios[kv_source] != plan.ratio || plan.ratio > 2) {
      return invalid("config: layer " + std::to_string(l) + " has a ratio its source has not");
    }
    plan.kv_source = kv_source;
    plan.index_source = index_source;
    plan.mode = owns_kv ? LayerMode::kFull : owns_index ? LayerMode::kReindex : LayerMode::kReuse;
    plan.pooled = owns_index && l > config.candidate_source_layer_id;
  }
  return plans;
}

std::string config_json(const Config& config) {
  std::string out =
      "{\n  \"architectures\": [\n    \"DeepseekV41ForCausalLM\"\n  ],\n"
      "  \"model_type\": \"deepseek_v41\",\n  \"dtype\": \"bfloat16\",\n"
      "  \"transformers_version\": \"5.6.0\",\n  \"bos_token_id\": 0,\n  \"eos_token_id\": 1,\n"
      "  \"pad_token_id\": 2,\n  \"image_token_id\": " +
      std::to_string(config.vocab_size - 1) +
      ",\n  \"quantization_config\": {\n    \"quant_method\": \"fp8\",\n"
      "    \"activation_scheme\": \"dynamic\",\n    \"weight_block_size\": [32, 32],\n"
      "    \"scale_fmt\": \"ue8m0\",\n    \"expert_dtype\": \"fp4\"\n  },\n"
      "  \"text_config\": {\n    \"model_type\": \"deepseek_v41_text\",\n";
  for (const IntField& field : kIntFields) {
    out += "    \"" + std::string(field.name) + "\": " + std::to_string(config.*field.member);
    out += ",\n";
  }
  for (const RealField& field : kRealFields) {
    out += "    \"" + std::string(field.name) + "\": " + number(config.*field.member) + ",\n";
  }
  for (const ListField& field : kListFields) {
    out += "    \"" + std::string(field.name) + "\": " + list_text(config.*field.member) + ",\n";
  }
  out += "    \"rope_scaling\": {\n      \"rope_type\": \"yarn\",\n      \"factor\": " +
         number(config.rope_factor) + ",\n      \"beta_fast\": " + number(config.rope_beta_fast) +
         ",\n      \"beta_slow\": " + number(config.rope_beta_slow) +
         ",\n      \"original_max_position_embeddings\": " + std::to_string(config.rope_original) +
         "\n    },\n";
  out +=
      "    \"num_key_value_heads\": 1,\n    \"hidden_act\": \"silu\",\n"
      "    \"attention_bias\": false,\n    \"attention_dropout\": 0.0,\n"
      "    \"initializer_range\": 0.02,\n    \"use_cache\": true,\n"
      "    \"tie_word_embeddings\": false,\n    \"num_nextn_predict_layers\": 0,\n"
      "    \"dspark_block_size\": 0,\n    \"dspark_noise_token_id\": 2,\n"
      "    \"dspark_markov_rank\": 32,\n    \"dspark_num_experts_per_tok\": 2,\n"
      "    \"dspark_target_layer_ids\": [],\n    \"dspark_n_routed_experts\": 8,\n"
      "    \"n_shared_experts\": 1,\n    \"scoring_func\": \"sqrtsoftplus\",\n"
      "    \"topk_method\": \"noaux_tc\",\n    \"norm_topk_prob\": true\n  },\n"
      "  \"vision_config\": {\n    \"model_type\": \"deepseek_v41_vision\",\n"
      "    \"num_hidden_layers\": 0,\n    \"hidden_size\": 64,\n    \"num_attention_heads\": 2,\n"
      "    \"intermediate_size\": 96,\n    \"patch_size\": 14,\n    \"rope_theta\": 10000,\n"
      "    \"downsample_ratio\": 3,\n    \"max_image_tokens\": 64,\n    \"min_pixels\": 28224,\n"
      "    \"max_wh_ratio\": null\n  }\n}\n";
  return out;
}

}  // namespace fathom::train
