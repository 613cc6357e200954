// Goal: the plan that every layer follows is the published one. Method: the dump is compared with
// stored texts, which were written from the layer tables of the specification.

#include "model/layer_plan.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "model/plans.h"

namespace fathom {
namespace {

std::string stored(const std::string& name) {
  return read_file(std::string(FATHOM_SOURCE_DIR) + "/tests/golden/plans/" + name + ".txt").value();
}

TEST(LayerPlan, TheReleasedPlanEqualsTheStoredText) {
  EXPECT_EQ(plan_text(make_plan(named_plan("released").value())), stored("released"));
}

TEST(LayerPlan, TheTinyPlanEqualsTheStoredText) {
  EXPECT_EQ(plan_text(make_plan(named_plan("t12").value())), stored("t12"));
}

TEST(LayerPlan, TheEncoderEndsBeforeTheLastRatioOneSource) {
  EXPECT_EQ(make_plan(named_plan("released").value()).n_encoder_layers, 20);
  EXPECT_EQ(make_plan(named_plan("t12").value()).n_encoder_layers, 6);
  EXPECT_EQ(make_plan(named_plan("p7").value()).n_encoder_layers, 4);
  EXPECT_EQ(make_plan(named_plan("p165").value()).n_encoder_layers, 6);
}

TEST(LayerPlan, KvBytesFollowFromTheGeometry) {
  const KvSpec spec = KvSpec::make(make_plan(named_plan("released").value()).kv).value();
  EXPECT_EQ(spec.bytes_per_token(), 890.0);
  EXPECT_EQ(spec.window_bytes(), 2703360);
  EXPECT_EQ(spec.remainder_bytes(), 12288);
  EXPECT_EQ(KvSpec::make(make_plan(named_plan("t12").value()).kv)->bytes_per_token(), 106.0);
  EXPECT_EQ(KvSpec::make(make_plan(named_plan("n34").value()).kv)->bytes_per_token(), 106.0);
  EXPECT_EQ(KvSpec::make(make_plan(named_plan("p7").value()).kv)->bytes_per_token(), 534.0);
  EXPECT_EQ(KvSpec::make(make_plan(named_plan("p165").value()).kv)->bytes_per_token(), 534.0);
}

TEST(LayerPlan, APlanWithoutARatioOneSourceHasNoDecoder) {
  ModelConfig config = named_plan("t12").value();
  for (int64_t& ratio : config.text_config.compress_ratios) ratio = ratio == 1 ? 2 : ratio;
  ASSERT_TRUE(validate_config(config, "c"));
  const ModelPlan plan = make_plan(config);
  EXPECT_EQ(plan.n_encoder_layers, 12);
  EXPECT_FALSE(plan.layers.back().decoder);
}

}  // namespace
}  // namespace fathom
