#include "eval/case_bounds.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/folder_testing.h"

namespace fathom {
namespace {

class CaseBoundsTest : public FolderTest {
 protected:
  Result<CaseBounds> read(const std::string& manifest) {
    std::filesystem::create_directories(folder());
    path_ = folder() + "/manifest.json";
    EXPECT_TRUE(write_file_atomic(path_, manifest));
    return CaseBounds::read(path_);
  }
  std::string complaint(const std::string& manifest) {
    const auto bounds = read(manifest);
    EXPECT_FALSE(bounds) << manifest;
    return bounds ? "" : bounds.error().message.substr(path_.size() + 2);
  }

  std::string path_;
};

TEST_F(CaseBoundsTest, TheLargestRecordedDeviationCounts) {
  const auto bounds = read(R"({"cases": {"long": {"n": 3,
      "logit_deviation_other_sum_orders": [{"max_abs": 0.5, "rms": 0.1}, {"max_abs": 0.25}],
      "independent_implementation_deviation": {"max_abs": 0.125, "rms": 0.2}},
      "replay": {"7": {"deviation_other_sum_orders": 2}}}})");
  ASSERT_TRUE(bounds) << bounds.error().message;
  EXPECT_EQ(bounds->logits("long"), 2.0);
  EXPECT_DOUBLE_EQ(bounds->logits_rms("long"), 0.6);
  EXPECT_EQ(bounds->logits("replay", "7"), 8.0);
  EXPECT_EQ(bounds->logits("short"), 1e-3);
}

TEST_F(CaseBoundsTest, ABoundThatWouldPassEverythingIsRefused) {
  EXPECT_EQ(complaint("{}"), "cases: wanted an object of cases, found none");
  EXPECT_EQ(complaint(R"({"cases": {}})"), "cases: wanted an object of cases, found none");
  EXPECT_EQ(complaint(R"({"cases": {"short": 3}})"), "cases.short: wanted an object, found 3");
  const auto deviation = [&](const std::string& value) {
    return complaint(R"({"cases": {"short": {"deviation_other_sum_orders": )" + value + "}}}");
  };
  const std::string wanted =
      "cases.short.deviation_other_sum_orders: wanted a number from 0 to 1000, found ";
  EXPECT_EQ(deviation("-1"), wanted + "-1");
  EXPECT_EQ(deviation("1e308"), wanted + "1E308");
  EXPECT_EQ(deviation("true"), wanted + "true");
  EXPECT_EQ(deviation("null"), wanted + "null");
  EXPECT_TRUE(deviation(R"([0, {"max_abs": "0"}])")
                  .ends_with("max_abs: wanted a number from 0 to "
                             "1000, found \"0\""));
  EXPECT_EQ(complaint(R"({"cases": {"short": {"layer_forced_deviation_other_sum_orders": {"out":
                {"max_abs": 0, "max_fraction_of_elements_differing": 2}}}}})"),
            "cases.short.layer_forced_deviation_other_sum_orders.out."
            "max_fraction_of_elements_differing: wanted a number from 0 to 1, found 2");
}

}  // namespace
}  // namespace fathom
