#pragma once

// The fields of a configuration in file order, written once for reading and writing.
//
// A visitor has field(Key, member) and object(name, member, visit). kFloat fields print a
// fraction (10.0), kNumber fields do not (16).

#include "model/config.h"

namespace fathom {

// kNested: required in the nested spelling; the flat one may lack it and then means the one value
// that its program knows (ModelConfig's defaults).
enum class Need : uint8_t { kRequired, kNested, kOptional };
enum class Form : uint8_t { kFloat, kNumber };

struct Key {
  const char* name;            // in config.json
  const char* flat = nullptr;  // in the flat spelling; nullptr: the same name
  Need need = Need::kRequired;
  Form form = Form::kFloat;  // of a double
};

inline constexpr Need kOptional = Need::kOptional;
inline constexpr Need kNested = Need::kNested;
inline constexpr Need kRequired = Need::kRequired;

template <typename Config, typename Visitor>
void visit_rope_scaling(Config& c, Visitor& v) {
  v.field(Key{"rope_type", "rope_type", kOptional}, c.rope_type);
  v.field(Key{"factor", "rope_factor", kRequired, Form::kNumber}, c.factor);
  v.field(Key{"beta_fast", nullptr, kRequired, Form::kNumber}, c.beta_fast);
  v.field(Key{"beta_slow", nullptr, kRequired, Form::kNumber}, c.beta_slow);
  v.field(Key{"original_max_position_embeddings", "original_seq_len"},
          c.original_max_position_embeddings);
}

template <typename Config, typename Visitor>
void visit_quantization(Config& c, Visitor& v) {
  v.field(Key{"quant_method", nullptr, kOptional}, c.quant_method);
  v.field(Key{"activation_scheme", nullptr, kOptional}, c.activation_scheme);
  v.field(Key{"weight_block_size", nullptr, kNested}, c.weight_block_size);
  v.field(Key{"scale_fmt", nullptr, kNested}, c.scale_fmt);
  v.field(Key{"expert_dtype", nullptr, kNested}, c.expert_dtype);
}

template <typename Config, typename Visitor>
void visit_text_sizes(Config& c, Visitor& v) {
  v.field(Key{"model_type", nullptr, kNested}, c.model_type);
  v.field(Key{"vocab_size"}, c.vocab_size);
  v.field(Key{"hidden_size", "dim"}, c.hidden_size);
  v.field(Key{"moe_intermediate_size", "moe_inter_dim"}, c.moe_intermediate_size);
  v.field(Key{"num_hidden_layers", "n_layers"}, c.num_hidden_layers);
  v.field(Key{"num_attention_heads", "n_heads"}, c.num_attention_heads);
  v.field(Key{"num_key_value_heads", nullptr, kOptional}, c.num_key_value_heads);
  v.field(Key{"head_dim"}, c.head_dim);
  v.field(Key{"qk_rope_head_dim", "rope_head_dim"}, c.qk_rope_head_dim);
  v.field(Key{"q_lora_rank"}, c.q_lora_rank);
  v.field(Key{"o_lora_rank"}, c.o_lora_rank);
  v.field(Key{"o_groups"}, c.o_groups);
  v.field(Key{"hidden_act", nullptr, kOptional}, c.hidden_act);
  v.field(Key{"swiglu_limit"}, c.swiglu_limit);
  v.field(Key{"rms_norm_eps", "norm_eps"}, c.rms_norm_eps);
  v.field(Key{"attention_bias", nullptr, kOptional}, c.attention_bias);
  v.field(Key{"attention_dropout", nullptr, kOptional}, c.attention_dropout);
  v.field(Key{"initializer_range", nullptr, kOptional}, c.initializer_range);
  v.field(Key{"use_cache", nullptr, kOptional}, c.use_cache);
  v.field(Key{"tie_word_embeddings", nullptr, kOptional}, c.tie_word_embeddings);
  v.field(Key{"max_position_embeddings", nullptr, kOptional}, c.max_position_embeddings);
  v.field(Key{"rope_theta", nullptr, kRequired, Form::kNumber}, c.rope_theta);
  v.object("rope_scaling", c.rope_scaling,
           [](auto& rope, auto& visitor) { visit_rope_scaling(rope, visitor); });
}

template <typename Config, typename Visitor>
void visit_text_experts(Config& c, Visitor& v) {
  v.field(Key{"n_routed_experts"}, c.n_routed_experts);
  v.field(Key{"n_shared_experts"}, c.n_shared_experts);
  v.field(Key{"num_experts_per_tok", "n_activated_experts"}, c.num_experts_per_tok);
  v.field(Key{"scoring_func", "score_func"}, c.scoring_func);
  v.field(Key{"topk_method", nullptr, kNested}, c.topk_method);
  v.field(Key{"norm_topk_prob", nullptr, kNested}, c.norm_topk_prob);
  v.field(Key{"routed_scaling_factor", "route_scale"}, c.routed_scaling_factor);
}

template <typename Config, typename Visitor>
void visit_text_memory(Config& c, Visitor& v) {
  v.field(Key{"sliding_window", "window_size"}, c.sliding_window);
  v.field(Key{"compress_ratios"}, c.compress_ratios);
  v.field(Key{"compress_rope_theta", nullptr, kRequired, Form::kNumber}, c.compress_rope_theta);
  v.field(Key{"kv_source_layer_ids", "kv_source_layers"}, c.kv_source_layer_ids);
  v.field(Key{"index_source_layer_ids", "index_source_layers"}, c.index_source_layer_ids);
  v.field(Key{"index_n_heads"}, c.index_n_heads);
  v.field(Key{"index_head_dim"}, c.index_head_dim);
  v.field(Key{"index_topk"}, c.index_topk);
  v.nullable(Key{"candidate_source_layer_id", "candidate_source_layer", kOptional},
             c.candidate_source_layer_id);
  v.field(Key{"candidate_topk_blocks", nullptr, kOptional}, c.candidate_topk_blocks);
  v.field(Key{"candidate_block_size", nullptr, kOptional}, c.candidate_block_size);
  v.field(Key{"hc_mult"}, c.hc_mult);
  v.field(Key{"hc_sinkhorn_iters"}, c.hc_sinkhorn_iters);
  v.field(Key{"hc_eps"}, c.hc_eps);
  v.field(Key{"engram_layer_ids"}, c.engram_layer_ids);
  v.field(Key{"engram_num_embeddings"}, c.engram_num_embeddings);
  v.field(Key{"engram_max_ngram_size"}, c.engram_max_ngram_size);
  v.field(Key{"engram_vocab_size"}, c.engram_vocab_size);
  v.field(Key{"engram_n_heads"}, c.engram_n_heads);
  v.field(Key{"engram_head_dim"}, c.engram_head_dim);
  v.field(Key{"engram_pad_token_id", "engram_pad_id"}, c.engram_pad_token_id);
  v.field(Key{"engram_compressed_vocab_size"}, c.engram_compressed_vocab_size);
}

template <typename Config, typename Visitor>
void visit_text_drafter(Config& c, Visitor& v) {
  v.field(Key{"num_nextn_predict_layers", "n_mtp_layers", kOptional}, c.num_nextn_predict_layers);
  v.field(Key{"dspark_block_size", nullptr, kOptional}, c.dspark_block_size);
  v.field(Key{"dspark_noise_token_id", nullptr, kOptional}, c.dspark_noise_token_id);
  v.field(Key{"dspark_target_layer_ids", nullptr, kOptional}, c.dspark_target_layer_ids);
  v.field(Key{"dspark_markov_rank", nullptr, kOptional}, c.dspark_markov_rank);
  v.field(Key{"dspark_n_routed_experts", nullptr, kOptional}, c.dspark_n_routed_experts);
  v.field(Key{"dspark_num_experts_per_tok", "dspark_n_activated_experts", kOptional},
          c.dspark_num_experts_per_tok);
}

template <typename Config, typename Visitor>
void visit_text(Config& c, Visitor& v) {
  visit_text_sizes(c, v);
  visit_text_experts(c, v);
  visit_text_memory(c, v);
  visit_text_drafter(c, v);
}

template <typename Config, typename Visitor>
void visit_vision(Config& c, Visitor& v) {
  v.field(Key{"model_type", nullptr, kNested}, c.model_type);
  v.field(Key{"num_hidden_layers", "vision_n_layers"}, c.num_hidden_layers);
  v.field(Key{"hidden_size", "vision_dim"}, c.hidden_size);
  v.field(Key{"num_attention_heads", "vision_n_heads"}, c.num_attention_heads);
  v.field(Key{"intermediate_size", "vision_inter_dim"}, c.intermediate_size);
  v.field(Key{"patch_size", "vision_patch_size"}, c.patch_size);
  v.field(Key{"rope_theta", "vision_rope_theta", kRequired, Form::kNumber}, c.rope_theta);
  v.field(Key{"downsample_ratio", "vision_downsample_ratio"}, c.downsample_ratio);
  v.field(Key{"max_image_tokens", "vision_max_n_token"}, c.max_image_tokens);
  v.field(Key{"min_pixels", "vision_min_pixels"}, c.min_pixels);
  v.field(Key{"max_wh_ratio", "vision_max_wh_ratio", kOptional}, c.max_wh_ratio);
}

template <typename Config, typename Visitor>
void visit_root(Config& c, Visitor& v) {
  v.field(Key{"architectures", nullptr, kOptional}, c.architectures);
  v.field(Key{"model_type", nullptr, kNested}, c.model_type);
  v.field(Key{"dtype", nullptr, kOptional}, c.dtype);
  v.field(Key{"transformers_version", nullptr, kOptional}, c.transformers_version);
  v.field(Key{"bos_token_id", nullptr, kNested}, c.bos_token_id);
  v.field(Key{"eos_token_id", nullptr, kNested}, c.eos_token_id);
  v.field(Key{"pad_token_id", nullptr, kNested}, c.pad_token_id);
  v.field(Key{"image_token_id", nullptr, kNested}, c.image_token_id);
  v.object("quantization_config", c.quantization_config,
           [](auto& quantization, auto& visitor) { visit_quantization(quantization, visitor); });
  v.object("text_config", c.text_config,
           [](auto& text, auto& visitor) { visit_text(text, visitor); });
  v.object("vision_config", c.vision_config,
           [](auto& vision, auto& visitor) { visit_vision(vision, visitor); });
}

}  // namespace fathom
