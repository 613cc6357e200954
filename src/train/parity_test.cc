// The engine and the differentiable definition on the shipped model, over one short passage. The
// whole measurement is tests/long/parity.sh.

#include "train/parity.h"

#include <gtest/gtest.h>

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
  const ValueParity& out = report->values.at("out");
  EXPECT_EQ(out.elements, 12 * 160 * 4 * 384);
  EXPECT_GE(out.within, out.elements * 98 / 100);
  EXPECT_GE(out.equal, out.elements * 98 / 100);
  EXPECT_GE(report->passage_cosine, 0.998);
  EXPECT_EQ(report->unexplained, 0);
  EXPECT_GE(report->same_top, report->positions * 90 / 100);
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
  other.entries.differing = other.entries.alike = 1;
  EXPECT_FALSE(other.holds());
}

}  // namespace
}  // namespace fathom::train
