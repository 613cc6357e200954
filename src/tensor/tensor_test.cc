// Goal: codecs exact for every code, views and budgets right. Method: exhaustive loops, published
// micro-vectors (spec/backbone.md 9) and the byte accounting of spec/backbone.md 5.
#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/codecs.h"
#include "tensor/kv_spec.h"

namespace fathom {
namespace {

// The nearest code by search over all values, ties to the even code.
template <typename Decode>
uint8_t nearest_code(float value, int n_codes, Decode decode) {
  int best = 0;
  for (int code = 1; code < n_codes; ++code) {
    const double distance = std::fabs(static_cast<double>(decode(code)) - value);
    const double least = std::fabs(static_cast<double>(decode(best)) - value);
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best);
}

TEST(Codecs, E4m3RoundTripsEveryCode) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(float_to_e4m3(value), code);
    }
  }
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9f);
  EXPECT_EQ(e4m3_to_float(0x08), 0x1p-6f);
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
}

TEST(Codecs, E4m3RoundsEveryBf16ToTheNearestCode) {
  const auto decode = [](int code) { return e4m3_to_float(static_cast<uint8_t>(code)); };
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const float value = bf16_to_float(static_cast<Bf16>(bits));
    const uint8_t code = float_to_e4m3(value);
    ASSERT_EQ(code, nearest_code(std::fmin(value, 448.0f), 0x7f, decode)) << value;
    ASSERT_EQ(float_to_e4m3(-value), code | 0x80);
  }
}

TEST(Codecs, E2m1FollowsThePublishedVectors) {
  const float inf = INFINITY;
  EXPECT_EQ(float_to_e2m1(0.25f), 0);
  EXPECT_EQ(float_to_e2m1(std::nextafter(0.25f, inf)), 1);
  EXPECT_EQ(float_to_e2m1(0.75f), 2);
  EXPECT_EQ(float_to_e2m1(std::nextafter(0.75f, 0.0f)), 1);
  EXPECT_EQ(float_to_e2m1(1.25f), 2);
  EXPECT_EQ(float_to_e2m1(1.75f), 4);
  EXPECT_EQ(float_to_e2m1(2.5f), 4);
  EXPECT_EQ(float_to_e2m1(3.5f), 6);
  EXPECT_EQ(float_to_e2m1(5.0f), 6);
  EXPECT_EQ(float_to_e2m1(std::nextafter(5.0f, inf)), 7);
  EXPECT_EQ(float_to_e2m1(-0.25f), 8);
  EXPECT_EQ(float_to_e2m1(-0.0f), 8);
  EXPECT_EQ(float_to_e2m1(-0.75f), 10);
  for (uint8_t code = 0; code < 16; ++code) EXPECT_EQ(float_to_e2m1(e2m1_to_float(code)), code);
}

TEST(Codecs, E8m0IsEveryPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    const float value = e8m0_to_float(static_cast<uint8_t>(code));
    EXPECT_EQ(value, static_cast<float>(std::ldexp(1.0, code - 127)));
    EXPECT_EQ(power_of_two_to_e8m0(value), code);
  }
  EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
}

TEST(Codecs, Bf16RoundTripsEveryCodeAndRoundsToEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_float(static_cast<Bf16>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(float_to_bf16(value), bits);
  }
  EXPECT_EQ(round_to_bf16(1.00390625f), 1.0f);
  EXPECT_EQ(round_to_bf16(1.01171875f), 1.015625f);
  EXPECT_TRUE(std::isnan(round_to_bf16(NAN)));
}

TEST(Codecs, PowerOfTwoCeilKeepsExactPowers) {
  EXPECT_EQ(power_of_two_ceil(1.0f), 1.0f);
  EXPECT_EQ(power_of_two_ceil(std::nextafter(1.0f, 2.0f)), 2.0f);
  EXPECT_EQ(power_of_two_ceil(0.75f), 1.0f);
}

TEST(KvSpec, ReproducesTheReleasedBudgets) {
  const auto spec = KvSpec::make({.n_layers = 40,
                                  .head_dim = 512,
                                  .index_head_dim = 128,
                                  .sliding_window = 128,
                                  .sources = {{2, 2}, {8, 2}, {14, 2}, {20, 1}}});
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->bytes_per_token(), 890.0);
  EXPECT_EQ(spec->block_bytes(), 56'960);
  EXPECT_EQ(spec->window_bytes(), 2'703'360);
  EXPECT_EQ(spec->remainder_bytes(), 12'288);
  EXPECT_EQ(spec->stream(KvRole::kMain, 20).record_bytes(), 288);
  EXPECT_EQ(spec->stream(KvRole::kIndex, 2).record_bytes(), 68);
  EXPECT_EQ(spec->stream(KvRole::kWindow, 39).record_bytes(), 528);
}

TEST(KvSpec, ReproducesTheTinyBudget) {
  const auto spec = KvSpec::make({.n_layers = 12,
                                  .head_dim = 64,
                                  .index_head_dim = 32,
                                  .sliding_window = 8,
                                  .sources = {{2, 2}, {4, 2}, {6, 1}}});
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->bytes_per_token(), 106.0);
}

TEST(KvSpec, PlanesDoNotOverlap) {
  const auto spec = KvSpec::make({.n_layers = 3,
                                  .head_dim = 96,
                                  .index_head_dim = 32,
                                  .sliding_window = 7,
                                  .sources = {{1, 2}, {2, 1}}});
  ASSERT_TRUE(spec);
  int64_t end[2] = {0, 0};
  for (const KvStream& stream : spec->streams()) {
    int64_t& last = end[stream.lifetime() == KvLifetime::kPrefix ? 0 : 1];
    EXPECT_GE(stream.payload_offset, last);
    EXPECT_EQ(stream.scale_offset, stream.payload_offset + stream.rows * stream.payload_bytes);
    last = stream.scale_offset + stream.rows * stream.scale_bytes;
  }
  EXPECT_EQ(end[0], spec->block_bytes());
  EXPECT_LE(end[1], spec->session_bytes());
}

TEST(KvSpec, RefusesWidthsThatDoNotFillTheirScales) {
  const auto spec =
      KvSpec::make({.n_layers = 1, .head_dim = 40, .index_head_dim = 32, .sliding_window = 8});
  ASSERT_FALSE(spec);
  EXPECT_NE(spec.error().message.find("multiple of 32, found 40"), std::string::npos);
}

TEST(Tensor, RowsAndReshapeShareBytes) {
  float values[6] = {0, 1, 2, 3, 4, 5};
  const Tensor t = Tensor::dense(values, DType::kF32, {3, 2});
  EXPECT_EQ(t.row<float>(2)[1], 5.0f);
  EXPECT_EQ(t.rows(1, 3).row<float>(0)[0], 2.0f);
  EXPECT_EQ(t.reshaped({2, 3}).row<float>(1)[0], 3.0f);
  EXPECT_EQ(shape_text(t), "[3, 2]");
}

TEST(Arena, ReleasesToAMarkAndRemembersThePeak) {
  Arena arena(Buffer(1024));
  arena.make(DType::kF32, {10});
  const int64_t mark = arena.mark();
  arena.make(DType::kBf16, {100});
  arena.release(mark);
  EXPECT_EQ(arena.used(), 64);
  EXPECT_EQ(arena.peak(), 64 + 256);
}

TEST(Arena, MeasuringCountsWithoutMemory) {
  Arena arena = Arena::measuring();
  EXPECT_TRUE(arena.make(DType::kF32, {1000, 1000, 1000}).empty());
  EXPECT_EQ(arena.peak(), 4'000'000'000);
}

}  // namespace
}  // namespace fathom
