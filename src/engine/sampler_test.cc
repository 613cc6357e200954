// Goal: sampling follows its options and its seed. Method: small distributions with known answers.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "engine/stop_text.h"

namespace fathom {
namespace {

const std::vector<float> kLogits = {1.0f, 3.0f, 2.0f, 3.0f, -5.0f};

TEST(Sampler, TemperatureZeroTakesTheLargestAndTheSmallerIdOfATie) {
  EXPECT_EQ(*sample(kLogits, {}, 0, {.temperature = 0}), 1);
}

// The ids that 50 positions draw with one seed.
std::vector<int32_t> drawn(uint64_t seed, int32_t token) {
  std::vector<int32_t> tokens;
  std::vector<int32_t> ids;
  for (int i = 0; i < 50; ++i) {
    ids.push_back(*sample(kLogits, tokens, 0, {.temperature = 1, .seed = seed}));
    tokens.push_back(token);
  }
  return ids;
}

TEST(Sampler, DrawsDependOnSeedAndPositionAndNotOnTheTokens) {
  EXPECT_EQ(drawn(7, 1), drawn(7, 4));
  EXPECT_NE(drawn(7, 1), drawn(8, 1));
  EXPECT_NE(drawn(7, 1), drawn(7 + (uint64_t{1} << 32), 1));
  const std::vector<int32_t> ids = drawn(7, 1);
  EXPECT_GT(std::set<int32_t>(ids.begin(), ids.end()).size(), 1u);
}

std::map<int32_t, int> histogram(const SamplingOptions& base) {
  std::map<int32_t, int> counts;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    SamplingOptions options = base;
    options.seed = seed;
    ++counts[*sample(kLogits, {}, 0, options)];
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
  EXPECT_EQ(*sample(kLogits, tokens, 1, {.temperature = 0, .repetition_penalty = 2}), 2);
  EXPECT_EQ(*sample(kLogits, tokens, 1, {.temperature = 0, .frequency_penalty = 0.3}), 1);
  EXPECT_EQ(*sample(kLogits, tokens, 0, {.temperature = 0, .presence_penalty = 2}), 2);
}

TEST(Sampler, TokensWithoutALogitTakeNoPenalty) {
  const std::vector<int32_t> tokens = {5, 1 << 30};
  for (const double temperature : {0.0, 1.0}) {
    const SamplingOptions options = {.temperature = temperature,
                                     .repetition_penalty = 2,
                                     .presence_penalty = 1,
                                     .frequency_penalty = 1};
    EXPECT_EQ(*sample(kLogits, tokens, 1, options),
              *sample(kLogits, {tokens.data(), 2}, 2, {.temperature = temperature}));
  }
}

TEST(Sampler, RefusesLogitsThatAreNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
    std::vector<float> logits(1000, 1.0f);
    logits[321] = bad;
    for (const double temperature : {0.0, 1.0}) {
      const auto id = sample(logits, {}, 0, {.temperature = temperature, .top_k = 10});
      ASSERT_FALSE(id);
      EXPECT_EQ(id.error().code, ErrorCode::kInvalid);
      EXPECT_NE(id.error().message.find("for token 321"), std::string::npos);
    }
  }
}

TEST(Sampler, PenaltiesOfTheLargestLogitsStayFinite) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const std::vector<float> logits = {kLargest, -kLargest, 0};
  const std::vector<int32_t> tokens = {0, 1};
  const SamplingOptions options = {.temperature = 1, .repetition_penalty = 0.01};
  EXPECT_EQ(*sample(logits, tokens, 0, options), 0);
}

// Known answers of the generator's authors (Random123, kat_vectors).
TEST(Sampler, RandomNumbersAreThePublishedOnes) {
  using Words = std::array<uint32_t, 4>;
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(counted_uniform(0, 0), static_cast<double>(0x6627e8d5e169c58d >> 11) * 0x1p-53);
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

// The mask comes first: what it leaves is sampled as if nothing else were there.
TEST(Sampler, AMaskLeavesTheDrawOfWhatItAllows) {
  std::mt19937 random(31);
  std::normal_distribution<float> normal(0, 3);
  for (int i = 0; i < 300; ++i) {
    std::vector<float> logits(150);
    for (float& logit : logits) logit = normal(random);
    std::vector<uint64_t> mask(2);  // ids from 128 on are not in it
    std::vector<float> allowed;
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < 128; ++id) {
      if (random() % 5 != 0) continue;
      mask[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
      allowed.push_back(logits[static_cast<size_t>(id)]);
      ids.push_back(id);
    }
    SamplingOptions options = {
        .temperature = i % 4 * 0.5, .top_p = 0.9, .seed = static_cast<uint64_t>(i)};
    options.top_k = i % 3 == 0 ? 5 : 0;
    const std::vector<int32_t> tokens(3, 149);
    const auto drawn = sample(logits, tokens, 3, options, mask);
    const auto alone = sample(allowed, tokens, 3, options);
    ASSERT_TRUE(drawn && alone);
    EXPECT_EQ(*drawn, ids[static_cast<size_t>(*alone)]);
  }
  const std::vector<float> logits(70, 1);
  EXPECT_FALSE(sample(logits, {}, 0, {}, std::vector<uint64_t>(2)));
  EXPECT_EQ(*sample(logits, {}, 0, {.temperature = 0}, std::vector<uint64_t>{0, 32}), 69);
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
