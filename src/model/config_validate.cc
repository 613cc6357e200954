// What a configuration must satisfy before anything is derived from it. Bounds keep every later
// product inside 64 bits and every enumeration inside memory.

#include <algorithm>
#include <charconv>
#include <limits>

#include "model/config.h"
#include "model/engram_hash.h"
#include "model/layer_plan.h"
#include "text/quote.h"

namespace fathom {
namespace {

std::string show(int64_t value) { return std::to_string(value); }
std::string show(bool value) { return value ? "true" : "false"; }
std::string show(const std::string& value) { return quote(value); }
std::string show(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof(digits), value).ptr};
}
std::string show(const std::vector<int64_t>& values) {
  std::string text = "[";
  for (const int64_t value : values) text += (text.size() > 1 ? ", " : "") + show(value);
  return text + "]";
}

// Collects the first complaint; later checks of a section are skipped once there is one.
class Validator {
 public:
  explicit Validator(const ModelConfig& config)
      : config_(config), text_(config.text_config), vision_(config.vision_config) {}

  Result<void> run(const std::string& where) {
    using Section = void (Validator::*)();
    for (const Section section :
         {&Validator::identity, &Validator::sizes, &Validator::widths, &Validator::fixed_choices,
          &Validator::numbers, &Validator::sources, &Validator::pool, &Validator::engram,
          &Validator::drafter, &Validator::vision}) {
      (this->*section)();
      if (!error_.empty()) return invalid(where + ": " + error_);
    }
    return {};
  }

 private:
  template <typename T>
  bool require(bool holds, const std::string& key, const std::string& wanted, const T& found) {
    if (!holds && error_.empty()) error_ = key + ": wanted " + wanted + ", found " + show(found);
    return holds;
  }
  template <typename T>
  void equal(const std::string& key, const T& found, const T& wanted) {
    require(found == wanted, key, show(wanted), found);
  }
  void range(const std::string& key, int64_t found, int64_t low, int64_t high) {
    require(found >= low && found <= high, key, show(low) + " to " + show(high), found);
  }
  void multiple(const std::string& key, int64_t found, int64_t of, int64_t high) {
    require(found > 0 && found <= high && found % of == 0, key,
            "a multiple of " + show(of) + " from " + show(of) + " to " + show(high), found);
  }
  void token(const std::string& key, int64_t found) { range(key, found, 0, text_.vocab_size - 1); }

  // Layer ids ascend strictly and lie inside the model.
  void layer_ids(const std::string& key, const std::vector<int64_t>& ids) {
    const bool inside = std::all_of(ids.begin(), ids.end(), [&](int64_t id) {
      return id >= 0 && id < text_.num_hidden_layers;
    });
    require(inside, key, "layers from 0 to " + show(text_.num_hidden_layers - 1), ids);
    const bool ascends =
        std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
    require(ascends, key, "ascending layers", ids);
  }
  static bool has(const std::vector<int64_t>& ids, int64_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  }
  int64_t ratio(int64_t layer) const { return text_.compress_ratios[static_cast<size_t>(layer)]; }

  // A prefix of a model type is another model (spec/backbone.md 8, item 22).
  void identity() {
    equal("model_type", config_.model_type, std::string("deepseek_v41"));
    equal("text_config.model_type", text_.model_type, std::string("deepseek_v41_text"));
    equal("vision_config.model_type", vision_.model_type, std::string("deepseek_v41_vision"));
  }

  void sizes() {
    range("text_config.vocab_size", text_.vocab_size, 2, 1 << 24);
    range("text_config.num_hidden_layers", text_.num_hidden_layers, 1, 256);
    range("text_config.num_attention_heads", text_.num_attention_heads, 1, 1024);
    range("text_config.n_routed_experts", text_.n_routed_experts, 1, 4096);
    range("text_config.num_experts_per_tok", text_.num_experts_per_tok, 1,
          std::min<int64_t>(text_.n_routed_experts, 64));
    range("text_config.sliding_window", text_.sliding_window, 1, 1 << 20);
    range("text_config.max_position_embeddings", text_.max_position_embeddings, 0, 1 << 24);
    range("text_config.index_n_heads", text_.index_n_heads, 1, 1024);
    range("text_config.index_topk", text_.index_topk, 1, 1 << 20);
    range("text_config.hc_mult", text_.hc_mult, 1, 8);
    range("text_config.hc_sinkhorn_iters", text_.hc_sinkhorn_iters, 1, 1000);
    token("bos_token_id", config_.bos_token_id);
    token("eos_token_id", config_.eos_token_id);
    token("pad_token_id", config_.pad_token_id);
    token("image_token_id", config_.image_token_id);
  }

  // Every quantised input is cut into blocks of 32 channels, latents into groups of 16.
  void widths() {
    multiple("text_config.hidden_size", text_.hidden_size, 32, 1 << 16);
    multiple("text_config.moe_intermediate_size", text_.moe_intermediate_size, 32, 1 << 16);
    multiple("text_config.head_dim", text_.head_dim, 32, 1 << 12);
    multiple("text_config.index_head_dim", text_.index_head_dim, 32, 1 << 12);
    multiple("text_config.q_lora_rank", text_.q_lora_rank, 32, 1 << 16);
    range("text_config.o_groups", text_.o_groups, 1, text_.num_attention_heads);
    require(text_.o_groups > 0 && text_.num_attention_heads % text_.o_groups == 0,
            "text_config.o_groups",
            "a divisor of num_attention_heads " + show(text_.num_attention_heads), text_.o_groups);
    range("text_config.o_lora_rank", text_.o_lora_rank, 1, 1 << 16);
    require(text_.o_groups * text_.o_lora_rank % 32 == 0, "text_config.o_lora_rank",
            "o_groups x o_lora_rank to be a multiple of 32", text_.o_lora_rank);
    multiple("text_config.qk_rope_head_dim", text_.qk_rope_head_dim, 2,
             std::min(text_.head_dim, text_.index_head_dim));
  }

  void fixed_choices() {
    const QuantizationConfig& quantization = config_.quantization_config;
    equal("quantization_config.weight_block_size", quantization.weight_block_size, {32, 32});
    equal("quantization_config.quant_method", quantization.quant_method, std::string("fp8"));
    equal("quantization_config.scale_fmt", quantization.scale_fmt, std::string("ue8m0"));
    equal("quantization_config.expert_dtype", quantization.expert_dtype, std::string("fp4"));
    equal("text_config.num_key_value_heads", text_.num_key_value_heads, int64_t{1});
    equal("text_config.n_shared_experts", text_.n_shared_experts, int64_t{1});
    equal("text_config.hidden_act", text_.hidden_act, std::string("silu"));
    equal("text_config.scoring_func", text_.scoring_func, std::string("sqrtsoftplus"));
    equal("text_config.topk_method", text_.topk_method, std::string("noaux_tc"));
    equal("text_config.norm_topk_prob", text_.norm_topk_prob, true);
    equal("text_config.attention_bias", text_.attention_bias, false);
    equal("text_config.tie_word_embeddings", text_.tie_word_embeddings, false);
    equal("text_config.rope_scaling.rope_type", text_.rope_scaling.rope_type, std::string("yarn"));
  }

  // Kernels take these as FP32, in which a smaller number would be 0.
  void positive(const std::string& key, double found) {
    const bool fits = found >= std::numeric_limits<float>::min() && found <= 1e12;
    require(fits, key, "a positive number of FP32, 1e12 at most", found);
  }
  void theta(const std::string& key, double found) {
    require(found > 1 && found <= 1e12, key, "more than 1, 1e12 at most", found);
  }

  void numbers() {
    positive("text_config.swiglu_limit", text_.swiglu_limit);
    positive("text_config.rms_norm_eps", text_.rms_norm_eps);
    positive("text_config.hc_eps", text_.hc_eps);
    positive("text_config.routed_scaling_factor", text_.routed_scaling_factor);
    theta("text_config.rope_theta", text_.rope_theta);
    theta("text_config.compress_rope_theta", text_.compress_rope_theta);
    require(text_.attention_dropout >= 0 && text_.attention_dropout < 1,
            "text_config.attention_dropout", "a share from 0 to less than 1",
            text_.attention_dropout);
    positive("text_config.initializer_range", text_.initializer_range);
    positive("text_config.rope_scaling.beta_fast", text_.rope_scaling.beta_fast);
    positive("text_config.rope_scaling.beta_slow", text_.rope_scaling.beta_slow);
    require(text_.rope_scaling.factor >= 1 && text_.rope_scaling.factor <= 1e12,
            "text_config.rope_scaling.factor", "1 to 1e12", text_.rope_scaling.factor);
    range("text_config.rope_scaling.original_max_position_embeddings",
          text_.rope_scaling.original_max_position_embeddings, 1, 1 << 24);
  }

  void ratios() {
    const auto wanted = static_cast<size_t>(text_.num_hidden_layers +
                                            std::max<int64_t>(0, text_.num_nextn_predict_layers));
    require(text_.compress_ratios.size() == wanted, "text_config.compress_ratios",
            show(static_cast<int64_t>(wanted)) + " entries, one a layer and one a drafter layer",
            static_cast<int64_t>(text_.compress_ratios.size()));
    for (const int64_t m : text_.compress_ratios) {
      require(m >= 0 && m <= 2, "text_config.compress_ratios", "ratios 0, 1 or 2", m);
    }
  }

  void sources() {
    const std::string kv_key = "text_config.kv_source_layer_ids";
    const std::string index_key = "text_config.index_source_layer_ids";
    range("text_config.num_nextn_predict_layers", text_.num_nextn_predict_layers, 0, 16);
    ratios();
    layer_ids(kv_key, text_.kv_source_layer_ids);
    layer_ids(index_key, text_.index_source_layer_ids);
    if (!error_.empty()) return;
    for (const int64_t id : text_.kv_source_layer_ids) {
      require(ratio(id) > 0, kv_key, "layers with a compression ratio", id);
      require(has(text_.index_source_layer_ids, id), index_key,
              "every kv source, also layer " + show(id), text_.index_source_layer_ids);
    }
    for (const int64_t id : text_.index_source_layer_ids) {
      require(ratio(id) > 0, index_key, "layers with a compression ratio", id);
    }
    for (int64_t layer = 0; layer < text_.num_hidden_layers && error_.empty(); ++layer) {
      readers(layer, kv_key);
    }
  }

  // A reader has its source's ratio: both count entries of the same cache.
  void readers(int64_t layer, const std::string& kv_key) {
    if (ratio(layer) == 0) return;
    const int64_t source = kv_source_of(text_, layer);
    if (!require(source >= 0, kv_key, "a source at or before layer " + show(layer),
                 text_.kv_source_layer_ids)) {
      return;
    }
    require(ratio(source) == ratio(layer), "text_config.compress_ratios[" + show(layer) + "]",
            show(ratio(source)) + " as in its kv source, layer " + show(source), ratio(layer));
  }

  void pool() {
    const int64_t source = text_.candidate_source_layer_id;
    const std::string key = "text_config.candidate_source_layer_id";
    require(source >= -1, key, "an index source or null", source);
    // Without a pool the sizes decide nothing and may be absent, which reads as 0.
    const int64_t low = source < 0 ? 0 : 1;
    range("text_config.candidate_topk_blocks", text_.candidate_topk_blocks, low, 1 << 20);
    range("text_config.candidate_block_size", text_.candidate_block_size, low, 1 << 12);
    if (source < 0) return;
    require(has(text_.index_source_layer_ids, source), key, "an index source", source);
    if (!error_.empty()) return;
    for (const int64_t id : text_.index_source_layer_ids) {
      if (id <= source) continue;
      const int64_t cache = kv_source_of(text_, id);
      require(cache == kv_source_of(text_, source), key,
              "the same kv source as index source " + show(id) + " after it", source);
      const int64_t reach = (text_.candidate_topk_blocks - 1) * text_.candidate_block_size + 1;
      require(text_.index_topk <= reach, "text_config.index_topk",
              "at most " + show(reach) + ", what the candidate pool always holds",
              text_.index_topk);
    }
  }

  void engram() {
    const std::string key = "text_config.engram_num_embeddings";
    layer_ids("text_config.engram_layer_ids", text_.engram_layer_ids);
    require(text_.engram_num_embeddings.size() == text_.engram_layer_ids.size(), key,
            show(static_cast<int64_t>(text_.engram_layer_ids.size())) +
                " entries, one for each of engram_layer_ids",
            text_.engram_num_embeddings);
    if (text_.engram_layer_ids.empty()) return;
    range("text_config.engram_layer_ids (number)",
          static_cast<int64_t>(text_.engram_layer_ids.size()), 1, 16);
    range("text_config.engram_max_ngram_size", text_.engram_max_ngram_size, 2, 8);
    range("text_config.engram_n_heads", text_.engram_n_heads, 1, 64);
    range("text_config.engram_vocab_size", text_.engram_vocab_size, 2, 1 << 28);
    multiple("text_config.engram_head_dim", text_.engram_head_dim, 32, 1 << 12);
    range("text_config.engram_compressed_vocab_size", text_.engram_compressed_vocab_size, 1,
          text_.vocab_size);
    token("text_config.engram_pad_token_id", text_.engram_pad_token_id);
    if (!error_.empty()) return;
    std::vector<int64_t> sums;
    for (const auto& primes : engram_primes(text_)) {
      int64_t sum = 0;
      for (const int64_t prime : primes) sum += prime;
      sums.push_back(sum);
    }
    equal(key + " (sums of the derived primes)", text_.engram_num_embeddings, sums);
  }

  void drafter() {
    if (text_.num_nextn_predict_layers == 0) return;
    range("text_config.dspark_block_size", text_.dspark_block_size, 1, 64);
    token("text_config.dspark_noise_token_id", text_.dspark_noise_token_id);
    range("text_config.dspark_markov_rank", text_.dspark_markov_rank, 1, 1 << 14);
    range("text_config.dspark_n_routed_experts", text_.dspark_n_routed_experts, 1, 4096);
    range("text_config.dspark_num_experts_per_tok", text_.dspark_num_experts_per_tok, 1,
          std::min<int64_t>(text_.dspark_n_routed_experts, 64));
    layer_ids("text_config.dspark_target_layer_ids", text_.dspark_target_layer_ids);
    require(!text_.dspark_target_layer_ids.empty(), "text_config.dspark_target_layer_ids",
            "at least one layer", text_.dspark_target_layer_ids);
    for (int64_t s = 0; s < text_.num_nextn_predict_layers && error_.empty(); ++s) {
      equal("text_config.compress_ratios of drafter layer " + show(s),
            ratio(text_.num_hidden_layers + s), int64_t{0});
    }
  }

  void vision() {
    range("vision_config.num_hidden_layers", vision_.num_hidden_layers, 0, 256);
    if (vision_.num_hidden_layers == 0) return;
    range("vision_config.hidden_size", vision_.hidden_size, 1, 1 << 16);
    range("vision_config.num_attention_heads", vision_.num_attention_heads, 1, 1024);
    const int64_t heads = std::max<int64_t>(1, vision_.num_attention_heads);
    require(vision_.hidden_size % heads == 0 && vision_.hidden_size / heads % 4 == 0,
            "vision_config.hidden_size", "a multiple of 4 x num_attention_heads",
            vision_.hidden_size);
    range("vision_config.intermediate_size", vision_.intermediate_size, 1, 1 << 16);
    range("vision_config.patch_size", vision_.patch_size, 1, 256);
    range("vision_config.downsample_ratio", vision_.downsample_ratio, 1, 16);
    range("vision_config.max_image_tokens", vision_.max_image_tokens, 4, 1 << 20);
    range("vision_config.min_pixels", vision_.min_pixels, 1, 1 << 30);
    theta("vision_config.rope_theta", vision_.rope_theta);
    if (vision_.max_wh_ratio) positive("vision_config.max_wh_ratio", *vision_.max_wh_ratio);
  }

  const ModelConfig& config_;
  const TextConfig& text_;
  const VisionConfig& vision_;
  std::string error_;
};

}  // namespace

Result<void> validate_config(const ModelConfig& config, const std::string& where) {
  return Validator(config).run(where);
}

}  // namespace fathom
