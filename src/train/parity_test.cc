// The engine and the differentiable definition, bit for bit: on the golden tiny model and on one
// short passage of the shipped one. The whole measurement is tests/long/parity.sh.

#include "train/parity.h"

#include <gtest/gtest.h>

#include "train/export.h"

namespace fathom::train {
namespace {

const std::string kRoot = FATHOM_SOURCE_DIR;

ParityOptions short_passage() {
  ParityOptions options;
  options.model = kRoot + "/models/fathom-34m";
  options.text = kRoot + "/models/heldout";
  options.passages = 1;
  options.tokens = 160;
  return options;
}

// Every word of every layer and the logits; the same sums in another order do not pass.
void expect_equal_bits(const ParityReport& report) {
  for (const auto& [name, value] : report.values) {
    EXPECT_GT(value.elements, 0) << name;
    EXPECT_EQ(value.equal, value.elements) << name;
  }
  EXPECT_EQ(report.logits.equal, report.logits.elements);
  EXPECT_EQ(report.same_top, report.positions);
  EXPECT_GT(report.order_deviation, 0);
  EXPECT_TRUE(report.holds());
}

TEST(Parity, LayersAgreeOnTheShippedModel) {
  const auto report = measure_parity(short_passage());
  ASSERT_TRUE(report.has_value()) << report.error().message;
  SCOPED_TRACE(parity_text(*report));
  EXPECT_EQ(report->hashes.rows, 2 * 160);
  EXPECT_EQ(report->hashes.differing, 0);
  EXPECT_EQ(report->experts.rows, 12 * 160);
  EXPECT_EQ(report->experts.differing, 0);
  EXPECT_EQ(report->entries.rows, 5 * 160);
  EXPECT_EQ(report->entries.differing, 0);
  EXPECT_EQ(report->blocks.rows, 160);
  EXPECT_EQ(report->blocks.differing, 0);
  EXPECT_EQ(report->values.at("out").elements, 12 * 160 * 4 * 384);
  EXPECT_EQ(report->logits.elements, 160 * 4096);
  expect_equal_bits(*report);
}

TEST(Parity, LayersAgreeOnTheGoldenModel) {
  ParityOptions options;
  options.model = kRoot + "/tests/golden/t12";
  for (const char* name : {"short", "long"}) {
    const auto file = read_tensors(options.model + "/cases/" + name + ".safetensors");
    ASSERT_TRUE(file.has_value()) << file.error().message;
    const Tensor tokens = file->at("tokens").to(at::kInt).contiguous();
    const auto* begin = tokens.const_data_ptr<int32_t>();
    options.ids.emplace_back(begin, begin + tokens.numel());
  }
  const auto report = measure_parity(options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  SCOPED_TRACE(parity_text(*report));
  EXPECT_EQ(report->passages, 2);
  EXPECT_GT(report->positions, 100);
  EXPECT_EQ(report->entries.rows, 5 * report->positions);
  expect_equal_bits(*report);
}

TEST(Parity, RefusesAFolderWithoutATokenizer) {
  ParityOptions options = short_passage();
  options.model = kRoot + "/tests/golden/t12";
  const auto report = measure_parity(options);
  ASSERT_FALSE(report.has_value());
  EXPECT_NE(report.error().message.find("wanted tokenizer.json"), std::string::npos);
}

TEST(Parity, RefusesAFolderWithoutText) {
  ParityOptions options = short_passage();
  options.text = kRoot + "/models/fathom-34m";
  const auto report = measure_parity(options);
  ASSERT_FALSE(report.has_value());
  EXPECT_NE(report.error().message.find("wanted held-out *.txt.gz"), std::string::npos);
}

TEST(Parity, ABarThatIsMissedDoesNotHold) {
  ParityReport report;
  EXPECT_FALSE(report.holds());  // nothing was measured
  report.passages = 1;
  report.values["out"] = {.elements = 100, .equal = 99, .within = 98, .largest = 0.1};
  report.positions = report.same_top = 100;
  EXPECT_TRUE(report.holds());
  ParityReport other = report;
  other.same_top = 98;
  EXPECT_FALSE(other.holds());
  other = report;
  other.values["out"].within = 97;
  EXPECT_FALSE(other.holds());
  other = report;
  other.passage_cosine = 0.9989;
  EXPECT_FALSE(other.holds());
  other = report;
  other.hashes.differing = 1;
  EXPECT_FALSE(other.holds());
  other = report;
  other.entries.differing = 1;
  EXPECT_FALSE(other.holds());
}

}  // namespace
}  // namespace fathom::train
