// Goal: a configuration is read verbatim, written back byte for byte, and anything impossible is
// refused with the key's name. Method: the published digest of config.json, the golden tiny
// configuration, and single-field damage.

#include "model/config.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/file.h"
#include "base/hash.h"
#include "model/plans.h"

namespace fathom {
namespace {

const std::string kT12 = std::string(FATHOM_SOURCE_DIR) + "/tests/golden/t12/config.json";

ModelConfig plan(std::string_view name) { return named_plan(name).value(); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string error_of(const std::string& json) {
  const Result<ConfigFile> file = parse_config(json, "c.json");
  return file ? "accepted" : file.error().message;
}

TEST(Config, TheReleasedPlanIsThePublishedFileByteForByte) {
  const std::string json = config_to_json(plan("released"));
  EXPECT_EQ(json.size(), 3311u);
  const std::string digest = to_hex(sha256(std::as_bytes(std::span(json))));
  EXPECT_EQ(digest.substr(0, 16), "8be45ce0476004a3");
}

TEST(Config, TheTinyPlanEqualsTheGoldenFile) {
  const Result<ConfigFile> file = read_config(kT12);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->warnings.empty());
  EXPECT_TRUE(file->config == plan("t12"));
}

TEST(Config, EveryNamedPlanIsValidAndSurvivesARoundTrip) {
  for (const std::string& name : plan_names()) {
    const ModelConfig config = plan(name);
    const Result<void> valid = validate_config(config, name);
    EXPECT_TRUE(valid) << valid.error().message;
    const Result<ConfigFile> again = parse_config(config_to_json(config), name);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_TRUE(again->warnings.empty());
    EXPECT_TRUE(again->config == config) << name;
  }
}

// The reference program's flat file for the tiny model: other names, no sections.
TEST(Config, TheFlatSpellingGivesTheSameValues) {
  const std::string flat = R"({"dtype": "fp8", "expert_dtype": "fp4", "vocab_size": 256, "dim": 128,
    "moe_inter_dim": 64, "n_layers": 12, "n_mtp_layers": 0, "n_heads": 4, "n_routed_experts": 8,
    "n_shared_experts": 1, "n_activated_experts": 2, "score_func": "sqrtsoftplus",
    "route_scale": 1.5, "swiglu_limit": 1.0, "q_lora_rank": 64, "head_dim": 64,
    "rope_head_dim": 16, "norm_eps": 1e-20, "o_groups": 2, "o_lora_rank": 32, "window_size": 8,
    "compress_ratios": [0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1], "compress_rope_theta": 160000.0,
    "original_seq_len": 64, "rope_theta": 10000.0, "rope_factor": 16, "beta_fast": 32,
    "beta_slow": 1, "index_n_heads": 2, "index_head_dim": 32, "index_topk": 8,
    "kv_source_layers": [2, 4, 6], "index_source_layers": [2, 4, 6, 8, 10],
    "candidate_source_layer": 6, "candidate_topk_blocks": 4, "candidate_block_size": 4,
    "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-06, "engram_layer_ids": [1, 4],
    "engram_num_embeddings": [630, 834], "engram_max_ngram_size": 4, "engram_vocab_size": 97,
    "engram_n_heads": 2, "engram_head_dim": 32, "engram_pad_id": 2,
    "engram_compressed_vocab_size": 256, "dspark_noise_token_id": 254, "dspark_markov_rank": 32,
    "dspark_n_routed_experts": 8, "dspark_n_activated_experts": 2, "image_token_id": 255,
    "vision_n_layers": 0, "vision_dim": 64, "vision_n_heads": 2, "vision_inter_dim": 96,
    "vision_patch_size": 14, "vision_rope_theta": 10000, "vision_downsample_ratio": 3,
    "vision_max_n_token": 64, "vision_min_pixels": 28224, "vision_max_wh_ratio": null,
    "max_batch_size": 4})";
  const Result<ConfigFile> file = parse_config(flat, "flat");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->warnings.empty());
  ModelConfig wanted = plan("t12");
  wanted.text_config.max_position_embeddings = 0;  // the flat file does not have it
  EXPECT_TRUE(file->config == wanted);
}

TEST(Config, UnknownKeysAreReportedAndIgnored) {
  const std::string json = replaced(config_to_json(plan("t12")), "\"vocab_size\"",
                                    "\"num_hash_layers\": 3,\n    \"vocab_size\"");
  const Result<ConfigFile> file = parse_config(json, "c.json");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->warnings.size(), 1u);
  EXPECT_EQ(file->warnings[0], "text_config.num_hash_layers: unknown key");
  EXPECT_TRUE(file->config == plan("t12"));
}

TEST(Config, WrongTypesAndMissingKeysNameTheKey) {
  const std::string json = config_to_json(plan("t12"));
  EXPECT_EQ(error_of(replaced(json, "\"hidden_size\": 128", "\"hidden_size\": \"128\"")),
            "c.json: text_config.hidden_size: wanted an integer, found \"128\"");
  EXPECT_EQ(error_of(replaced(json, "\"hidden_size\": 128,", "")),
            "c.json: text_config.hidden_size: wanted an integer, found nothing");
  EXPECT_EQ(error_of(replaced(json, "\"hc_eps\": 1e-06", "\"hc_eps\": [1]")),
            "c.json: text_config.hc_eps: wanted a number, found [1]");
  EXPECT_EQ(error_of(replaced(json, "\"hidden_size\": 128", "\"hidden_size\": 1e400")),
            "c.json: text_config.hidden_size: wanted an integer, found Infinity");
  EXPECT_EQ(error_of("[]"), "c.json: wanted a JSON object, found []");
}

TEST(Config, WhatDecidesAnOutputIsNeverDefaulted) {
  const std::string json = config_to_json(plan("t12"));
  for (const char* line :
       {"  \"bos_token_id\": 0,\n", "  \"eos_token_id\": 1,\n", "  \"pad_token_id\": 2,\n",
        "  \"image_token_id\": 255,\n", "    \"n_shared_experts\": 1,\n",
        "    \"scoring_func\": \"sqrtsoftplus\",\n", "    \"norm_topk_prob\": true,\n",
        "    \"topk_method\": \"noaux_tc\",\n", "    \"scale_fmt\": \"ue8m0\",\n",
        "    \"model_type\": \"deepseek_v41_text\",\n"}) {
    const std::string text = line;
    const std::string key = text.substr(text.find('"') + 1, text.find("\":") - text.find('"') - 1);
    EXPECT_NE(error_of(replaced(json, line, "")).find(key + ": wanted"), std::string::npos) << key;
  }
  EXPECT_EQ(error_of(replaced(json, ",\n    \"expert_dtype\": \"fp4\"", "")),
            "c.json: quantization_config.expert_dtype: wanted a string, found nothing");
}

TEST(Config, AModelTypeIsComparedWhole) {
  EXPECT_EQ(error_of(replaced(config_to_json(plan("t12")), "\"deepseek_v41\"", "\"deepseek_v4\"")),
            "c.json: model_type: wanted \"deepseek_v41\", found \"deepseek_v4\"");
}

TEST(Config, TextOfAFileIsShownOnOneShortLine) {
  const std::string json = config_to_json(plan("t12"));
  EXPECT_EQ(error_of(replaced(json, "\"deepseek_v41\"", "\"\\u001b[31mx\\n\"")),
            "c.json: model_type: wanted \"deepseek_v41\", found \"\\x1B[31mx\\x0A\"");
  const std::string much = "\"" + std::string(900'000, 'x') + "\"";
  for (const char* key : {"\"deepseek_v41\"", "\"silu\"", "\"fp8\"", "128"}) {
    EXPECT_LT(error_of(replaced(json, key, much)).size(), 250u) << key;
  }
  const auto unknown =
      parse_config(replaced(json, "\"vocab_size\"", much + ": 1, \"vocab_size\""), "");
  ASSERT_TRUE(unknown);
  EXPECT_LT(unknown->warnings.at(0).size(), 250u);
}

// Keys that decide nothing without a pool may be absent with it.
TEST(Config, AModelWithoutACandidatePoolNeedsNoneOfItsKeys) {
  std::string json = config_to_json(plan("t12"));
  for (const char* line :
       {"    \"candidate_source_layer_id\": 6,\n", "    \"candidate_topk_blocks\": 4,\n",
        "    \"candidate_block_size\": 4,\n"}) {
    json = replaced(json, line, "");
  }
  const Result<ConfigFile> file = parse_config(json, "c.json");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->config.text_config.candidate_source_layer_id, -1);
}

struct Damage {
  const char* key;  // must stand in the message
  std::function<void(ModelConfig&)> apply;
};

void expect_refused(const std::vector<Damage>& damages) {
  for (const Damage& damage : damages) {
    ModelConfig config = plan("t12");
    damage.apply(config);
    const Result<void> valid = validate_config(config, "c.json");
    ASSERT_FALSE(valid) << damage.key;
    EXPECT_NE(valid.error().message.find(damage.key), std::string::npos) << valid.error().message;
    EXPECT_EQ(valid.error().message.find('\n'), std::string::npos);
  }
}

// Its sizes are looked at with a pool and without.
TEST(Config, ImpossiblePoolsAreRefusedByName) {
  expect_refused({
      {"candidate_source_layer_id", [](auto& c) { c.text_config.candidate_source_layer_id = -5; }},
      {"candidate_topk_blocks", [](auto& c) { c.text_config.candidate_topk_blocks = 0; }},
      {"candidate_block_size", [](auto& c) { c.text_config.candidate_block_size = 0; }},
      {"candidate_topk_blocks",
       [](auto& c) {
         c.text_config.candidate_source_layer_id = -1;
         c.text_config.candidate_topk_blocks = -5;
       }},
      {"candidate_block_size",
       [](auto& c) {
         c.text_config.candidate_source_layer_id = -1;
         c.text_config.candidate_block_size = -1;
       }},
  });
}

TEST(Config, ImpossiblePlansAreRefusedByName) {
  const std::vector<Damage> damages = {
      {"weight_block_size",
       [](auto& c) {
         c.quantization_config.weight_block_size = {128, 128};
       }},
      {"hidden_size", [](auto& c) { c.text_config.hidden_size = 100; }},
      {"head_dim", [](auto& c) { c.text_config.head_dim = 48; }},
      {"o_groups", [](auto& c) { c.text_config.o_groups = 3; }},
      {"qk_rope_head_dim", [](auto& c) { c.text_config.qk_rope_head_dim = 64; }},
      {"num_experts_per_tok", [](auto& c) { c.text_config.num_experts_per_tok = 9; }},
      {"kv_source_layer_ids",
       [](auto& c) {
         c.text_config.kv_source_layer_ids = {4, 2, 6};
       }},
      {"kv_source_layer_ids",
       [](auto& c) {
         c.text_config.kv_source_layer_ids = {4, 6};
       }},
      {"kv_source_layer_ids",
       [](auto& c) {
         c.text_config.kv_source_layer_ids = {2, 4, 12};
       }},
      {"kv_source_layer_ids",
       [](auto& c) {
         c.text_config.kv_source_layer_ids = {1, 4, 6};
       }},
      {"compress_ratios[6]",
       [](auto& c) {
         c.text_config.kv_source_layer_ids = {2, 4};
       }},
      {"compress_ratios", [](auto& c) { c.text_config.compress_ratios.pop_back(); }},
      {"compress_ratios", [](auto& c) { c.text_config.compress_ratios[3] = 4; }},
      {"index_source_layer_ids",
       [](auto& c) {
         c.text_config.index_source_layer_ids = {2, 6};
       }},
      {"candidate_source_layer_id", [](auto& c) { c.text_config.candidate_source_layer_id = 7; }},
      {"candidate_source_layer_id", [](auto& c) { c.text_config.candidate_source_layer_id = 4; }},
      {"index_topk", [](auto& c) { c.text_config.index_topk = 14; }},
      {"engram_num_embeddings", [](auto& c) { c.text_config.engram_num_embeddings[1] = 835; }},
      {"engram_num_embeddings", [](auto& c) { c.text_config.engram_num_embeddings.pop_back(); }},
      {"engram_pad_token_id", [](auto& c) { c.text_config.engram_pad_token_id = 256; }},
      {"engram_compressed", [](auto& c) { c.text_config.engram_compressed_vocab_size = 257; }},
      {"eos_token_id", [](auto& c) { c.eos_token_id = 256; }},
      {"num_nextn", [](auto& c) { c.text_config.num_nextn_predict_layers = -1; }},
      {"n_shared_experts", [](auto& c) { c.text_config.n_shared_experts = 2; }},
      {"rope_theta", [](auto& c) { c.text_config.rope_theta = 0; }},
      {"rms_norm_eps", [](auto& c) { c.text_config.rms_norm_eps = 0; }},
  };
  expect_refused(damages);
}

// Found before a kernel narrows them: in FP32 the small ones are 0, the large ones infinite.
TEST(Config, NumbersThatDecideNothingSaneAreRefusedByName) {
  expect_refused({
      {"swiglu_limit", [](auto& c) { c.text_config.swiglu_limit = 1e-300; }},
      {"rms_norm_eps", [](auto& c) { c.text_config.rms_norm_eps = 1e-300; }},
      {"hc_eps", [](auto& c) { c.text_config.hc_eps = 1e-46; }},
      {"routed_scaling_factor", [](auto& c) { c.text_config.routed_scaling_factor = 1e13; }},
      {"rope_theta", [](auto& c) { c.text_config.rope_theta = 1e300; }},
      {"compress_rope_theta", [](auto& c) { c.text_config.compress_rope_theta = 1e300; }},
      {"factor", [](auto& c) { c.text_config.rope_scaling.factor = 1e300; }},
      {"attention_dropout", [](auto& c) { c.text_config.attention_dropout = 1e300; }},
      {"attention_dropout", [](auto& c) { c.text_config.attention_dropout = -0.1; }},
      {"initializer_range", [](auto& c) { c.text_config.initializer_range = 0; }},
      {"image_token_id", [](auto& c) { c.image_token_id = -1; }},
      {"image_token_id", [](auto& c) { c.image_token_id = 0x7fffffff; }},
  });
  ModelConfig config = plan("t12");
  config.text_config.rms_norm_eps = 1e-30;
  EXPECT_TRUE(validate_config(config, "c.json"));
}

TEST(Config, ADrafterNeedsItsOwnSettings) {
  ModelConfig config = plan("released");
  config.text_config.dspark_target_layer_ids = {};
  EXPECT_FALSE(validate_config(config, "c"));
  config = plan("released");
  config.text_config.compress_ratios.back() = 1;
  EXPECT_FALSE(validate_config(config, "c"));
  config = plan("released");
  config.text_config.dspark_noise_token_id = 129280;
  EXPECT_FALSE(validate_config(config, "c"));
}

}  // namespace
}  // namespace fathom
