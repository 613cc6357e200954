// Goal: neither the engine nor `fathom check` knows T12's numbers. Method: random models of other
// shapes; cases written from the engine's scalar path are checked with the machine's best path, and
// must fail once a weight is another.
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "base/folder_testing.h"
#include "case_writer.h"
#include "engine/load.h"
#include "eval/case_check.h"
#include "model/engram_hash.h"
#include "model/plans.h"
#include "model/synth.h"
#include "ops/backends.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

void size_tables(TextConfig& text) {
  text.engram_num_embeddings.clear();
  for (const auto& primes : engram_primes(text)) {
    text.engram_num_embeddings.push_back(std::accumulate(primes.begin(), primes.end(), int64_t{0}));
  }
}

// Narrow heads, a window that is no divisor of anything, three encoder sources, two layers a
// source.
ModelConfig narrow() {
  ModelConfig config = *named_plan("t12");
  TextConfig& t = config.text_config;
  t.vocab_size = 320;
  t.hidden_size = 192;
  t.moe_intermediate_size = 96;
  t.num_hidden_layers = 9;
  t.num_attention_heads = 6;
  t.head_dim = 32;
  t.qk_rope_head_dim = 16;
  t.q_lora_rank = 96;
  t.o_groups = 3;
  t.o_lora_rank = 32;
  t.n_routed_experts = 12;
  t.num_experts_per_tok = 3;
  t.sliding_window = 13;
  t.compress_ratios = {2, 2, 0, 2, 1, 1, 1, 1, 1};
  t.kv_source_layer_ids = {0, 3, 4};
  t.index_source_layer_ids = {0, 1, 3, 4, 6, 7};
  t.candidate_source_layer_id = 4;
  t.candidate_block_size = 5;
  t.candidate_topk_blocks = 3;
  t.index_n_heads = 3;
  t.index_head_dim = 32;
  t.index_topk = 11;
  t.engram_layer_ids = {0, 2, 3};
  t.engram_max_ngram_size = 3;
  t.engram_n_heads = 3;
  t.engram_compressed_vocab_size = 320;
  size_tables(t);
  return config;
}

// Widths that are odd multiples of 32, many experts, no decoder half, no pool, no n-gram memory.
ModelConfig without_decoder() {
  ModelConfig config = *named_plan("t12");
  TextConfig& t = config.text_config;
  t.hidden_size = 96;
  t.moe_intermediate_size = 32;
  t.num_hidden_layers = 4;
  t.num_attention_heads = 3;
  t.head_dim = 96;
  t.qk_rope_head_dim = 24;
  t.q_lora_rank = 32;
  t.o_groups = 1;
  t.o_lora_rank = 96;
  t.n_routed_experts = 70;
  t.num_experts_per_tok = 6;
  t.sliding_window = 3;
  t.compress_ratios = {0, 2, 2, 2};
  t.kv_source_layer_ids = {1};
  t.index_source_layer_ids = {1, 3};
  t.candidate_source_layer_id = -1;
  t.index_n_heads = 1;
  t.index_head_dim = 96;
  t.index_topk = 2;
  t.hc_mult = 2;
  t.engram_layer_ids.clear();
  t.engram_num_embeddings.clear();
  return config;
}

// Wider than T12 in every direction, with one lone encoder layer.
ModelConfig wide() {
  ModelConfig config = *named_plan("t12");
  TextConfig& t = config.text_config;
  t.vocab_size = 1000;
  t.hidden_size = 320;
  t.moe_intermediate_size = 160;
  t.num_hidden_layers = 5;
  t.num_attention_heads = 10;
  t.head_dim = 128;
  t.qk_rope_head_dim = 64;
  t.q_lora_rank = 160;
  t.o_groups = 5;
  t.o_lora_rank = 64;
  t.sliding_window = 33;
  t.compress_ratios = {0, 1, 1, 1, 1};
  t.kv_source_layer_ids = {1};
  t.index_source_layer_ids = {1, 2, 4};
  t.candidate_source_layer_id = 2;
  t.candidate_topk_blocks = 9;
  t.candidate_block_size = 8;
  t.index_n_heads = 8;
  t.index_head_dim = 128;
  t.index_topk = 20;
  t.hc_mult = 3;
  t.engram_layer_ids = {0};
  t.engram_n_heads = 2;
  t.engram_head_dim = 64;
  t.engram_compressed_vocab_size = 1000;
  size_tables(t);
  return config;
}

struct ShapeCase {
  const char* name;
  ModelConfig (*config)();
  uint64_t seed;
  int64_t max_shard_bytes;
  int64_t n_cases;
};

class Shapes : public FolderTest, public testing::WithParamInterface<ShapeCase> {
 protected:
  void SetUp() override {
    ThreadPool pool(2);
    const ModelConfig config = GetParam().config();
    const auto valid = validate_config(config, GetParam().name);
    ASSERT_TRUE(valid) << valid.error().message;
    fs::create_directories(folder() + "/cases");
    const auto written = write_random_model(
        folder(), config, {.seed = GetParam().seed, .max_shard_bytes = GetParam().max_shard_bytes},
        pool);
    ASSERT_TRUE(written) << written.error().message;
  }
  void write(const std::string& suffix, IndexScores scores, Ops& ops) const {
    const auto loaded =
        load_model(folder(), {.model = {.index_scores = scores}, .need_tokenizer = false});
    ASSERT_TRUE(loaded) << loaded.error().message;
    write_cases(folder() + "/cases", *loaded->model, ops, suffix);
  }

  CaseReport check() const {
    const auto ops = make_backend({.n_threads = 2});
    auto report = check_cases(
        folder(), **ops, {.cases = folder() + "/cases", .manifest = folder() + "/manifest.json"});
    EXPECT_TRUE(report) << report.error().message;
    return report ? *report : CaseReport();
  }
};

TEST_P(Shapes, CasesOfTheScalarPathHoldOnTheBestOne) {
  const auto scalar = make_backend({.n_threads = 1, .cpu_path = CpuPath::kScalar});
  write("", IndexScores::kBf16, **scalar);
  write("_fp32score", IndexScores::kF32, **scalar);
  const CaseReport report = check();
  EXPECT_TRUE(report.problems.empty()) << report.problems.front();
  EXPECT_EQ(report.cases, GetParam().n_cases);
  EXPECT_EQ(report.worst.error, 0);  // the paths agree in every bit
  EXPECT_GT(report.compared, 300);
}

TEST_P(Shapes, AnotherModelOfTheShapeDoesNotHold) {
  const auto scalar = make_backend({.n_threads = 1, .cpu_path = CpuPath::kScalar});
  write("", IndexScores::kBf16, **scalar);
  for (const auto& entry : fs::directory_iterator(folder())) {
    if (entry.is_regular_file()) fs::remove(entry.path());
  }
  ThreadPool pool(2);
  ASSERT_TRUE(
      write_random_model(folder(), GetParam().config(), {.seed = GetParam().seed + 1}, pool));
  const CaseReport report = check();
  EXPECT_EQ(report.passed, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Shapes,
                         testing::Values(ShapeCase{"Narrow", narrow, 11, int64_t{1} << 20, 10},
                                         ShapeCase{"WithoutDecoder", without_decoder, 12,
                                                   int64_t{1} << 30, 9},
                                         ShapeCase{"Wide", wide, 13, int64_t{1} << 18, 10}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fathom
