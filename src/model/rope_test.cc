// Goal: rotation frequencies are the reference's, bit for bit, on any machine. Method: the golden
// tables of the released model and of the small one.
#include "model/rope.h"

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "model/plans.h"

namespace fathom {
namespace {

void expect_table(const std::string& name, const std::vector<float>& found) {
  const auto golden =
      Checkpoint::open(std::string(FATHOM_SOURCE_DIR) + "/tests/golden/ops/rope.safetensors");
  ASSERT_TRUE(golden) << golden.error().message;
  const auto table = golden->get(name);
  ASSERT_TRUE(table) << table.error().message;
  ASSERT_EQ(static_cast<int64_t>(found.size()), table->elements());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], table->as<float>()[i]) << name << i;
}

TEST(Rope, FrequenciesEqualTheGoldenTablesBitForBit) {
  const TextConfig released = named_plan("released")->text_config;
  expect_table("plain.inv_freq", rope_frequencies(released, false));
  expect_table("yarn.inv_freq_reciprocal_ramp", rope_frequencies(released, true));
  expect_table("t12.yarn.inv_freq", rope_frequencies(named_plan("t12")->text_config, true));
}

}  // namespace
}  // namespace fathom
