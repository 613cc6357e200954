#include "model/plans.h"

#include <algorithm>
#include <array>

#include "model/engram_hash.h"

namespace fathom {
namespace {

std::vector<int64_t> runs(std::initializer_list<std::array<int64_t, 2>> ratio_and_count) {
  std::vector<int64_t> ratios;
  for (const auto& [ratio, count] : ratio_and_count) {
    ratios.insert(ratios.end(), static_cast<size_t>(count), ratio);
  }
  return ratios;
}

// Table sizes follow from where the search for primes starts.
void size_tables(TextConfig& text) {
  text.engram_num_embeddings.clear();
  for (const auto& primes : engram_primes(text)) {
    int64_t rows = 0;
    for (const int64_t prime : primes) rows += prime;
    text.engram_num_embeddings.push_back(rows);
  }
}

TextConfig released_text() {
  TextConfig text = {.vocab_size = 129280,
                     .hidden_size = 5120,
                     .moe_intermediate_size = 2304,
                     .num_hidden_layers = 40,
                     .num_attention_heads = 64,
                     .head_dim = 512,
                     .qk_rope_head_dim = 64,
                     .q_lora_rank = 1280,
                     .o_lora_rank = 1024,
                     .o_groups = 8,
                     .swiglu_limit = 10.0,
                     .rms_norm_eps = 1e-20,
                     .max_position_embeddings = 1048576,
                     .rope_theta = 10000,
                     .rope_scaling = {.factor = 16,
                                      .beta_fast = 32,
                                      .beta_slow = 1,
                                      .original_max_position_embeddings = 65536},
                     .n_routed_experts = 384,
                     .num_experts_per_tok = 6,
                     .routed_scaling_factor = 1.5,
                     .sliding_window = 128,
                     .compress_ratios = runs({{0, 2}, {2, 18}, {1, 20}, {0, 3}}),
                     .compress_rope_theta = 160000,
                     .kv_source_layer_ids = {2, 8, 14, 20},
                     .index_source_layer_ids = {2, 8, 14, 20, 24, 28, 32, 36},
                     .index_n_heads = 32,
                     .index_head_dim = 128,
                     .index_topk = 512,
                     .candidate_source_layer_id = 20,
                     .candidate_topk_blocks = 2048,
                     .candidate_block_size = 8,
                     .hc_mult = 4,
                     .hc_sinkhorn_iters = 20,
                     .hc_eps = 1e-6,
                     .engram_layer_ids = {1, 14},
                     .engram_max_ngram_size = 4,
                     .engram_vocab_size = 16000000,
                     .engram_n_heads = 8,
                     .engram_head_dim = 256,
                     .engram_pad_token_id = 2,
                     .engram_compressed_vocab_size = 99092};
  text.num_nextn_predict_layers = 3;
  text.dspark_block_size = 5;
  text.dspark_noise_token_id = 128799;
  text.dspark_target_layer_ids = {37, 38, 39};
  text.dspark_markov_rank = 256;
  text.dspark_n_routed_experts = 128;
  text.dspark_num_experts_per_tok = 3;
  return text;
}

ModelConfig released() {
  ModelConfig config;
  config.image_token_id = 129264;
  config.text_config = released_text();
  config.vision_config = {.num_hidden_layers = 32,
                          .hidden_size = 1024,
                          .num_attention_heads = 16,
                          .intermediate_size = 2816,
                          .patch_size = 14,
                          .rope_theta = 10000,
                          .downsample_ratio = 3,
                          .max_image_tokens = 1024,
                          .min_pixels = 295936};
  return config;
}

// The wiring of the small models: six encoder and six decoder layers with every mode.
void wire_twelve_layers(TextConfig& text) {
  text.num_hidden_layers = 12;
  text.compress_ratios = runs({{0, 2}, {2, 4}, {1, 6}});
  text.kv_source_layer_ids = {2, 4, 6};
  text.index_source_layer_ids = {2, 4, 6, 8, 10};
  text.candidate_source_layer_id = 6;
  text.engram_layer_ids = {1, 4};
}

void drop_drafter_and_vision(ModelConfig& config) {
  TextConfig& text = config.text_config;
  text.compress_ratios.resize(static_cast<size_t>(text.num_hidden_layers));
  text.num_nextn_predict_layers = 0;
  text.dspark_block_size = 0;
  text.dspark_target_layer_ids.clear();
  config.vision_config.num_hidden_layers = 0;
}

ModelConfig t12() {
  ModelConfig config = released();
  config.image_token_id = 255;
  TextConfig& text = config.text_config;
  wire_twelve_layers(text);
  text.vocab_size = 256;
  text.hidden_size = 128;
  text.moe_intermediate_size = 64;
  text.num_attention_heads = 4;
  text.head_dim = 64;
  text.qk_rope_head_dim = 16;
  text.q_lora_rank = 64;
  text.o_lora_rank = 32;
  text.o_groups = 2;
  text.swiglu_limit = 1.0;
  text.max_position_embeddings = 1024;
  text.rope_scaling.original_max_position_embeddings = 64;
  text.n_routed_experts = 8;
  text.num_experts_per_tok = 2;
  text.sliding_window = 8;
  text.index_n_heads = 2;
  text.index_head_dim = 32;
  text.index_topk = 8;
  text.candidate_topk_blocks = 4;
  text.candidate_block_size = 4;
  text.engram_vocab_size = 97;
  text.engram_n_heads = 2;
  text.engram_head_dim = 32;
  text.engram_compressed_vocab_size = 256;
  text.dspark_noise_token_id = 254;
  text.dspark_markov_rank = 32;
  text.dspark_n_routed_experts = 8;
  text.dspark_num_experts_per_tok = 2;
  drop_drafter_and_vision(config);
  size_tables(text);
  config.vision_config.hidden_size = 64;
  config.vision_config.num_attention_heads = 2;
  config.vision_config.intermediate_size = 96;
  config.vision_config.max_image_tokens = 64;
  config.vision_config.min_pixels = 28224;
  return config;
}

// About 33.6 M parameters. The compressed vocabulary is the whole one, so that a random model of
// this plan runs without a tokenizer; an exported model states its tokenizer's number.
ModelConfig n34() {
  ModelConfig config = t12();
  config.image_token_id = 4095;
  TextConfig& text = config.text_config;
  text.vocab_size = 4096;
  text.hidden_size = 384;
  text.moe_intermediate_size = 160;
  text.num_attention_heads = 6;
  text.q_lora_rank = 128;
  text.o_lora_rank = 64;
  text.swiglu_limit = 10.0;
  text.max_position_embeddings = 32768;
  text.rope_scaling.original_max_position_embeddings = 2048;
  text.sliding_window = 64;
  text.index_n_heads = 4;
  text.index_topk = 64;
  text.candidate_topk_blocks = 64;
  text.candidate_block_size = 8;
  text.engram_vocab_size = 16384;
  text.engram_compressed_vocab_size = 4096;
  text.dspark_noise_token_id = 4094;
  size_tables(text);
  return config;
}

// About 18.5 M parameters, for ablations.
ModelConfig n12() {
  ModelConfig config = n34();
  TextConfig& text = config.text_config;
  text.hidden_size = 256;
  text.moe_intermediate_size = 128;
  text.num_attention_heads = 4;
  text.engram_vocab_size = 8192;
  size_tables(text);
  return config;
}

// A proxy has the released widths and runs without a tokenizer.
ModelConfig proxy(int64_t n_experts, int64_t engram_vocab_size) {
  ModelConfig config = released();
  TextConfig& text = config.text_config;
  text.n_routed_experts = n_experts;
  text.engram_vocab_size = engram_vocab_size;
  text.engram_compressed_vocab_size = text.vocab_size;
  return config;
}

ModelConfig p7() {
  ModelConfig config = proxy(16, 16384);
  TextConfig& text = config.text_config;
  text.num_hidden_layers = 8;
  text.compress_ratios = runs({{0, 2}, {2, 2}, {1, 4}});
  text.kv_source_layer_ids = {2, 4};
  text.index_source_layer_ids = {2, 4, 6};
  text.candidate_source_layer_id = 4;
  text.engram_layer_ids = {1};
  drop_drafter_and_vision(config);
  size_tables(text);
  return config;
}

ModelConfig p165() {
  ModelConfig config = proxy(384, 16384);
  TextConfig& text = config.text_config;
  text.num_hidden_layers = 12;
  text.compress_ratios = runs({{0, 2}, {2, 4}, {1, 6}});
  text.kv_source_layer_ids = {2, 6};
  text.index_source_layer_ids = {2, 6, 8, 10};
  text.candidate_source_layer_id = 6;
  text.engram_layer_ids = {1};
  drop_drafter_and_vision(config);
  size_tables(text);
  return config;
}

// One rank of eight: an eighth of the experts and of the tables, all 40 layers.
ModelConfig r8() {
  ModelConfig config = proxy(48, 2000000);
  drop_drafter_and_vision(config);
  size_tables(config.text_config);
  return config;
}

ModelConfig sized_released() {
  ModelConfig config = released();
  size_tables(config.text_config);
  return config;
}

struct NamedPlan {
  const char* name;
  ModelConfig (*make)();
};

constexpr NamedPlan kPlans[] = {{"released", sized_released},
                                {"t12", t12},
                                {"n12", n12},
                                {"n34", n34},
                                {"p7", p7},
                                {"r8", r8},
                                {"p165", p165}};

}  // namespace

std::vector<std::string> plan_names() {
  std::vector<std::string> names;
  for (const NamedPlan& plan : kPlans) names.emplace_back(plan.name);
  return names;
}

Result<ModelConfig> named_plan(std::string_view name) {
  std::string known;
  for (const NamedPlan& plan : kPlans) {
    if (plan.name == name) return plan.make();
    known += (known.empty() ? "" : ", ") + std::string(plan.name);
  }
  return not_found("plan: wanted one of " + known + ", found " + std::string(name));
}

bool is_plan_path(std::string_view name_or_path) {
  return name_or_path.ends_with(".json") || name_or_path.find('/') != std::string_view::npos;
}

Result<ModelConfig> plan_from(const std::string& name_or_path) {
  if (!is_plan_path(name_or_path)) return named_plan(name_or_path);
  FATHOM_ASSIGN_OR_RETURN(ConfigFile file, read_config(name_or_path));
  return std::move(file.config);
}

}  // namespace fathom
