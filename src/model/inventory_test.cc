// Goal: the enumeration has every tensor, byte and parameter of the published model and of the
// tiny one. Method: published totals and subtotals (spec/backbone.md 1.5, 6.2, 6.3), and the names,
// dtypes and shapes of the golden checkpoint.

#include "model/inventory.h"

#include <gtest/gtest.h>

#include <map>

#include "checkpoint/checkpoint.h"
#include "model/plans.h"

namespace fathom {
namespace {

std::string group_of(const std::string& name) {
  const bool in_layer = name.starts_with("layers.");
  if (in_layer && name.find(".engram.embed.") != std::string::npos) return "engram tables";
  if (in_layer && name.find(".engram.") != std::string::npos) return "engram resident";
  if (in_layer) return std::stoi(name.substr(7)) < 20 ? "encoder" : "decoder";
  if (name.starts_with("mtp.")) return "drafter";
  if (name == "embed.weight") return "embedding";
  if (name == "head.weight" || name == "norm.weight") return "head";
  return "vision";
}

TEST(Inventory, TheReleasedModelHasThePublishedTotals) {
  const auto tensors = expected_tensors(named_plan("released").value());
  const InventoryTotals wanted = {96085, 510'286'023'000, 763'205'315'794};
  EXPECT_TRUE(inventory_totals(tensors) == wanted);
  std::map<std::string, InventoryTotals> groups;
  std::map<std::string, int64_t> dtype_bytes_sum;
  for (const ExpectedTensor& tensor : tensors) {
    groups[group_of(tensor.name)] += tensor;
    dtype_bytes_sum[std::string(dtype_name(tensor.dtype))] += tensor.bytes();
  }
  const std::map<std::string, InventoryTotals> published = {
      {"embedding", {1, 1'323'827'200, 661'913'600}},
      {"head", {2, 1'323'837'440, 661'918'720}},
      {"encoder", {46704, 147'838'599'136, 275'122'387'128}},
      {"decoder", {46699, 147'823'271'392, 275'119'961'016}},
      {"engram resident", {8, 315'043'840, 314'654'720}},
      {"engram tables", {4, 202'758'032'400, 196'613'849'600}},
      {"drafter", {2401, 7'932'874'632, 14'225'362'530}},
      {"vision", {266, 970'536'960, 485'268'480}}};
  for (const auto& [name, totals] : published) {
    EXPECT_EQ(groups[name].tensors, totals.tensors) << name;
    EXPECT_EQ(groups[name].payload_bytes, totals.payload_bytes) << name;
    EXPECT_EQ(groups[name].parameters, totals.parameters) << name;
  }
  EXPECT_EQ(groups.size(), published.size());
  const std::map<std::string, int64_t> by_dtype = {{"BF16", 3'952'883'712},
                                                   {"F32", 169'229'128},
                                                   {"F8_E4M3", 204'015'223'296},
                                                   {"F8_E8M0", 23'563'015'184},
                                                   {"I8", 278'585'671'680}};
  EXPECT_EQ(dtype_bytes_sum, by_dtype);
}

// Layers by their roles (spec/backbone.md 1.4), and the drafter's three (6.1, file sizes).
TEST(Inventory, LayersHaveThePublishedBytes) {
  std::map<int, int64_t> bytes;
  std::map<int, int64_t> count;
  for (const ExpectedTensor& tensor : expected_tensors(named_plan("released").value())) {
    if (!tensor.name.starts_with("layers.") || tensor.name.find("engram") != std::string::npos) {
      continue;
    }
    bytes[std::stoi(tensor.name.substr(7))] += tensor.bytes();
    ++count[std::stoi(tensor.name.substr(7))];
  }
  for (const auto& [layer, total] : bytes) {
    const bool full = layer == 2 || layer == 8 || layer == 14;
    const bool reindex = layer == 24 || layer == 28 || layer == 32 || layer == 36;
    const int64_t wanted = full          ? 7'405'694'680
                           : layer == 20 ? 7'400'451'800
                           : reindex     ? 7'395'076'568
                                         : 7'389'500'888;
    EXPECT_EQ(total, wanted) << layer;
  }
  EXPECT_EQ(count[0], 2334);
}

TEST(Inventory, TheTinyModelHasThePublishedTotals) {
  const InventoryTotals wanted = {980, 3'903'548, 3'986'200};
  EXPECT_TRUE(inventory_totals(expected_tensors(named_plan("t12").value())) == wanted);
}

TEST(Inventory, TheGoldenCheckpointIsAsExpected) {
  const auto golden = Checkpoint::open(std::string(FATHOM_SOURCE_DIR) + "/tests/golden/t12");
  ASSERT_TRUE(golden) << golden.error().message;
  const auto problems = golden->compare(expected_tensors(named_plan("t12").value()));
  EXPECT_TRUE(problems.empty()) << problems.front();
  EXPECT_EQ(golden->payload_bytes(), 3'903'548);
}

// Parameters in millions for which the plans were made: n34 and n12 in all, the proxies (7, 165 and
// 76 thousand millions) without their n-gram tables.
TEST(Inventory, OtherPlansHaveTheirStatedSizes) {
  const auto millions = [](const char* name) {
    const auto config = named_plan(name).value();
    int64_t tables = 0;
    for (const int64_t rows : config.text_config.engram_num_embeddings) {
      tables += rows * config.text_config.engram_head_dim;
    }
    const int64_t all = inventory_totals(expected_tensors(config)).parameters;
    return std::pair(static_cast<double>(all) / 1e6, static_cast<double>(all - tables) / 1e6);
  };
  EXPECT_NEAR(millions("n34").first, 33.6, 0.3);
  EXPECT_NEAR(millions("n12").first, 18.5, 0.3);
  EXPECT_NEAR(millions("p7").second, 7300, 60);
  EXPECT_NEAR(millions("p165").second, 166500, 100);
  EXPECT_NEAR(millions("r8").second, 76100, 100);
}

}  // namespace
}  // namespace fathom
