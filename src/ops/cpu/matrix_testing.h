#pragma once

// Random rows and weights in every stored form, for the tests of the matrix words.

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "ops/cpu/context.h"
#include "ops/cpu/dot.h"
#include "ops/cpu/quantize.h"
#include "ops/words.h"

namespace fathom::cpu {

// Rows with their bytes.
struct OwnedRows {
  Buffer bytes;
  Activation x;
};

inline OwnedRows make_rows(const std::vector<float>& values, int64_t n_rows, int64_t K) {
  OwnedRows rows;
  rows.bytes = Buffer(4 * n_rows * K + 256);
  std::byte* p = rows.bytes.data();
  const int64_t plane = (2 * n_rows * K + 63) / 64 * 64;
  rows.x.bf16 = Tensor::dense(p, DType::kBf16, {n_rows, K});
  rows.x.codes = Tensor::dense(p + plane, DType::kE4m3, {n_rows, K});
  rows.x.scales = Tensor::dense(p + plane + n_rows * K, DType::kE8m0, {n_rows, K / 32});
  for (int64_t r = 0; r < n_rows; ++r) {
    std::vector<float> rounded(static_cast<size_t>(K));
    for (int64_t k = 0; k < K; ++k) {
      const float v = round_to_bf16(values[static_cast<size_t>(r * K + k)]);
      rounded[static_cast<size_t>(k)] = v;
      rows.x.bf16.row<Bf16>(r)[k] = float_to_bf16(v);
    }
    quantize_a8(rounded.data(), K / 32 * 32, rows.x.codes.row<uint8_t>(r),
                rows.x.scales.row<uint8_t>(r));
  }
  return rows;
}

// Values over many orders of magnitude, with zeros of both signs.
inline std::vector<float> random_values(std::mt19937_64& random, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  std::normal_distribution<float> normal;
  for (float& v : values) {
    v = std::ldexp(normal(random), static_cast<int>(random() % 12) - 6);
    if (random() % 16 == 0) v = random() % 2 == 0 ? 0.0f : -0.0f;
  }
  return values;
}

enum class Scales { kUsual, kExtreme };

// Random bits of a format; FP8 codes are never NaN. Extreme scales are any E8M0 but NaN.
struct OwnedWeight {
  std::vector<uint8_t> data;
  std::vector<uint8_t> scale;
  Weight w;
};

inline OwnedWeight make_weight(std::mt19937_64& random, WeightFormat format, int64_t O, int64_t K,
                               Scales scales = Scales::kUsual) {
  OwnedWeight owned;
  owned.w.format = format;
  const auto fill_scale = [&](int64_t rows, int64_t columns) {
    owned.scale.resize(static_cast<size_t>(rows * columns));
    for (uint8_t& s : owned.scale) {
      s = static_cast<uint8_t>(scales == Scales::kUsual ? 112 + random() % 12 : random() % 255);
    }
    owned.w.scale = Tensor::dense(owned.scale.data(), DType::kE8m0, {rows, columns});
  };
  if (format == WeightFormat::kFp8Block32) {
    owned.data.resize(static_cast<size_t>(O * K));
    for (uint8_t& code : owned.data) {
      code = static_cast<uint8_t>(random());
      if ((code & 0x7f) == 0x7f) code ^= 1;
    }
    owned.w.data = Tensor::dense(owned.data.data(), DType::kE4m3, {O, K});
    fill_scale((O + 31) / 32, (K + 31) / 32);
  } else if (format == WeightFormat::kFp4Row32) {
    owned.data.resize(static_cast<size_t>(O * K / 2));
    for (uint8_t& code : owned.data) code = static_cast<uint8_t>(random());
    owned.w.data = Tensor::dense(owned.data.data(), DType::kI8, {O, K / 2});
    fill_scale(O, K / 32);
  } else if (format == WeightFormat::kBf16) {
    owned.data.resize(static_cast<size_t>(O * K * 2));
    const auto values = random_values(random, O * K);
    owned.w.data = Tensor::dense(owned.data.data(), DType::kBf16, {O, K});
    for (int64_t i = 0; i < O * K; ++i) {
      owned.w.data.as<Bf16>()[i] = float_to_bf16(values[static_cast<size_t>(i)]);
    }
  } else {
    owned.data.resize(static_cast<size_t>(O * K * 4));
    const auto values = random_values(random, O * K);
    owned.w.data = Tensor::dense(owned.data.data(), DType::kF32, {O, K});
    std::copy(values.begin(), values.end(), owned.w.data.as<float>());
  }
  return owned;
}

// A stored uint8 tensor seen as another type of one byte.
inline Tensor seen_as(Tensor t, DType dtype) {
  t.dtype = dtype;
  return t;
}

inline const char* format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kF32:
      return "f32";
    case WeightFormat::kFp8Block32:
      return "fp8";
    case WeightFormat::kFp4Row32:
      return "fp4";
  }
  return "?";
}

}  // namespace fathom::cpu
