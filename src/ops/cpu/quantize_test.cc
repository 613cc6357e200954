// Goal: codes, scales and values bit for bit. Method: golden rows (zeros, subnormals, ties,
// limits), the published scales of spec/backbone.md 9, and every bf16 against the plain codecs.
#include "ops/cpu/quantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "ops/cpu/golden_testing.h"
#include "ops/cpu/paths_testing.h"

namespace fathom {
namespace {

using Quantize = void (*)(CpuPath, const float*, int64_t, uint8_t*, uint8_t*);
using Dequantize = void (*)(CpuPath, const uint8_t*, const uint8_t*, int64_t, float*);

template <auto kBody>
void any_path(CpuPath, const uint8_t* codes, const uint8_t* scales, int64_t width, float* x) {
  kBody(codes, scales, width, x);
}

struct Format {
  const char* name;
  const char* codes;
  Quantize quantize;
  Dequantize dequantize;
  int64_t code_bytes;   // of 512 channels
  int64_t scale_bytes;  // of 512 channels
};

const Format kFormats[] = {
    {"a8", "codes", cpu::quantize_a8, cpu::dequantize_a8, 512, 16},
    {"idx4", "codes_packed", cpu::quantize_idx4, any_path<cpu::dequantize_idx4>, 256, 16},
    {"kv4", "codes_packed", cpu::quantize_kv4, any_path<cpu::dequantize_kv4>, 256, 32},
};

class QuantizePaths : public testing::TestWithParam<CpuPath> {};

TEST_P(QuantizePaths, EqualTheGoldenRowsBitForBit) {
  const Golden golden("quantizers");
  const auto input = golden.floats("input");
  for (const Format& f : kFormats) {
    const std::string name = f.name;
    const Tensor codes = golden.tensor(name + "." + f.codes);
    const Tensor scales = golden.tensor(name + ".scales");
    const Tensor values = golden.tensor(name + ".dequant");
    for (int64_t row = 0; row < codes.dim(0); ++row) {
      std::vector<uint8_t> c(static_cast<size_t>(f.code_bytes), 0xaa);
      std::vector<uint8_t> s(static_cast<size_t>(f.scale_bytes), 0xaa);
      std::vector<float> v(512, NAN);
      f.quantize(GetParam(), input.data() + row * 512, 512, c.data(), s.data());
      f.dequantize(GetParam(), c.data(), s.data(), 512, v.data());
      EXPECT_EQ(0, std::memcmp(c.data(), codes.row<uint8_t>(row), c.size())) << name << row;
      EXPECT_EQ(0, std::memcmp(s.data(), scales.row<uint8_t>(row), s.size())) << name << row;
      for (size_t i = 0; i < 512; ++i) {
        const auto wanted = std::bit_cast<uint32_t>(bf16_to_float(values.row<Bf16>(row)[i]));
        ASSERT_EQ(std::bit_cast<uint32_t>(v[i]), wanted) << name << " " << row << " " << i;
      }
    }
  }
}

uint8_t scale_of(const Format& f, float amax) {
  std::vector<float> x(32, 0.0f);
  x[5] = -round_to_bf16(amax);
  uint8_t codes[32] = {};
  uint8_t scales[2] = {};
  f.quantize(CpuPath::kScalar, x.data(), 32, codes, scales);
  return scales[0];
}

TEST(Quantize, ScalesFollowThePublishedVectors) {
  const std::pair<float, int> a8[] = {{1e-5f, 105}, {1e-4f, 105}, {0.4375f, 117}, {1.0f, 119},
                                      {1.75f, 119}, {3.5f, 120},  {7.0f, 121},    {10.0f, 122},
                                      {448, 127},   {450, 128},   {449, 127}};
  for (const auto& [amax, byte] : a8) EXPECT_EQ(scale_of(kFormats[0], amax), byte) << amax;
  const std::pair<float, int> idx4[] = {{0, -126}, {0.75f, -3}, {1.5f, -2}, {3, -1},
                                        {6, 0},    {6.5f, 1},   {12, 1}};
  for (const auto& [amax, k] : idx4) EXPECT_EQ(scale_of(kFormats[1], amax), k + 127) << amax;
  const std::pair<float, float> kv4[] = {{0, 0x1p-9f},         {0.01171875f, 0x1p-9f},
                                         {0.1f, 0.017578125f}, {1.0f, 0.171875f},
                                         {2.8125f, 0.46875f},  {6, 1},
                                         {10, 1.625f},         {22.6f, 3.75f}};
  for (const auto& [amax, scale] : kv4) {
    EXPECT_EQ(e4m3_to_float(scale_of(kFormats[2], amax)), scale) << amax;
  }
}

// Every bf16 x beside every power of two as the block's largest value: the code is the codec's.
TEST_P(QuantizePaths, EveryBf16GetsTheCodeOfThePlainCodec) {
  for (int exponent = -30; exponent <= 30; exponent += 3) {
    const float amax = std::ldexp(1.0f, exponent);
    const float scale =
        power_of_two_ceil(std::fmax(amax, 1e-4f) * std::bit_cast<float>(0x3B124925));
    std::vector<float> x(32, amax);
    uint8_t codes[32];
    uint8_t scales[1];
    for (uint32_t bits = 0; bf16_to_float(static_cast<Bf16>(bits)) <= amax; ++bits) {
      x[bits % 31 + 1] = bf16_to_float(static_cast<Bf16>(bits));
      x[(bits + 1) % 31 + 1] = -bf16_to_float(static_cast<Bf16>(bits));
      cpu::quantize_a8(GetParam(), x.data(), 32, codes, scales);
      ASSERT_EQ(codes[bits % 31 + 1], float_to_e4m3(x[bits % 31 + 1] / scale));
      ASSERT_EQ(codes[(bits + 1) % 31 + 1], float_to_e4m3(x[(bits + 1) % 31 + 1] / scale));
    }
  }
}

// Random bits as inputs and as codes, NaN among them: what the scalar path gives.
TEST_P(QuantizePaths, GiveTheBitsOfTheScalarPath) {
  std::mt19937_64 random(3);
  for (const Format& f : kFormats) {
    for (int round = 0; round < 300; ++round) {
      std::vector<float> x(512);
      for (float& v : x) v = bf16_to_float(static_cast<Bf16>(random() & 0xff7fu));
      std::vector<uint8_t> codes[2];
      std::vector<uint8_t> scales[2];
      std::vector<float> values[2];
      const CpuPath paths[2] = {CpuPath::kScalar, GetParam()};
      for (size_t i = 0; i < 2; ++i) {
        codes[i].assign(static_cast<size_t>(f.code_bytes), 0xaa);
        scales[i].assign(static_cast<size_t>(f.scale_bytes), 0xaa);
        values[i].assign(512, NAN);
        f.quantize(paths[i], x.data(), 512, codes[i].data(), scales[i].data());
        f.dequantize(paths[i], codes[i].data(), scales[i].data(), 512, values[i].data());
      }
      EXPECT_EQ(codes[0], codes[1]) << f.name;
      EXPECT_EQ(scales[0], scales[1]) << f.name;
      EXPECT_EQ(0, std::memcmp(values[0].data(), values[1].data(), 512 * sizeof(float))) << f.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, QuantizePaths, testing::ValuesIn(paths_here()));

}  // namespace
}  // namespace fathom
