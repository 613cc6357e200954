// Goal: sampling follows its options and its seed. Method: small distributions with known answers.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "engine/stop_text.h"

namespace fathom {
namespace {

const std::vector<float> kLogits = {1.0f, 3.0f, 2.0f, 3.0f, -5.0f};

TEST(Sampler, TemperatureZeroTakesTheLargestAndTheSmallerIdOfATie) {
  EXPECT_EQ(sample(kLogits, {}, 0, {.temperature = 0}).id, 1);
}

TEST(Sampler, TheSameSeedAndPositionGiveTheSameToken) {
  const std::vector<int32_t> tokens(17);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const SamplingOptions options = {.temperature = 1, .seed = seed};
    EXPECT_EQ(sample(kLogits, tokens, 3, options).id, sample(kLogits, tokens, 3, options).id);
  }
}

std::map<int32_t, int> histogram(const SamplingOptions& base) {
  std::map<int32_t, int> counts;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    SamplingOptions options = base;
    options.seed = seed;
    ++counts[sample(kLogits, {}, 0, options).id];
  }
  return counts;
}

TEST(Sampler, DrawsFollowTheSoftmax) {
  const auto counts = histogram({.temperature = 1});
  // softmax of the logits: 0.055, 0.402, 0.148, 0.402, 0.0001
  EXPECT_NEAR(counts.at(1) / 4000.0, 0.402, 0.03);
  EXPECT_NEAR(counts.at(2) / 4000.0, 0.148, 0.03);
}

TEST(Sampler, LimitsLeaveOutUnlikelyTokens) {
  EXPECT_EQ(histogram({.temperature = 1, .top_k = 2}).size(), 2u);
  EXPECT_EQ(histogram({.temperature = 1, .top_p = 0.5}).size(), 2u);
  EXPECT_EQ(histogram({.temperature = 1, .min_p = 0.3}).size(), 3u);
}

TEST(Sampler, PenaltiesActOnWhatWasSeen) {
  const std::vector<int32_t> tokens = {1, 3, 3};
  EXPECT_EQ(sample(kLogits, tokens, 1, {.temperature = 0, .repetition_penalty = 2}).id, 2);
  EXPECT_EQ(sample(kLogits, tokens, 1, {.temperature = 0, .frequency_penalty = 0.3}).id, 1);
  EXPECT_EQ(sample(kLogits, tokens, 0, {.temperature = 0, .presence_penalty = 2}).id, 2);
}

TEST(Sampler, RefusesValuesOutsideTheirRanges) {
  EXPECT_FALSE(validate({.temperature = -1}));
  EXPECT_FALSE(validate({.top_p = 1.5}));
  EXPECT_NE(validate({.min_p = -0.1}).error().message.find("min_p"), std::string::npos);
}

TEST(Sampler, UniformNumbersFillTheUnitInterval) {
  double sum = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    const double u = counted_uniform(5, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

// However the text is cut, what is shown is the text before the first stop string.
TEST(StopText, EveryCutGivesTheTextBeforeTheStop) {
  const std::string text = "one two END three";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    StopText stop({"END", "two x"});
    std::string shown = stop.push(text.substr(0, cut));
    shown += stop.push(text.substr(cut));
    shown += stop.flush();
    EXPECT_EQ(shown, "one two ");
    EXPECT_TRUE(stop.stopped());
  }
}

TEST(StopText, HeldBackTextComesOutAtTheEnd) {
  StopText stop({"END"});
  EXPECT_EQ(stop.push("so E"), "so ");
  EXPECT_EQ(stop.push("N"), "");
  EXPECT_EQ(stop.flush(), "EN");
  EXPECT_FALSE(stop.stopped());
}

}  // namespace
}  // namespace fathom
