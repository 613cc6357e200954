#pragma once

// Tables of decoded FP4 weights and a bound of FP8 scales, which all targets of dot_kernel.cc
// share. Only that file includes this.

#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/cpu/dot.h"

namespace fathom::cpu {

// value(code) * scale as the upper half of a float, by its two bytes: the product of an E2M1 and an
// E8M0 value has at most 2 significant bits, so the lower half is zero and nothing is rounded.
struct ScaledE2m1 {
  std::array<uint8_t, 16> high;
  std::array<uint8_t, 16> low;
};

constexpr uint16_t scaled_e2m1_bits(int code, int scale) {
  const int magnitude = code & 7;
  const int sign = (code & 8) << 12;
  if (scale == 255) return 0x7fc0;
  if (magnitude == 0) return static_cast<uint16_t>(sign);
  // value = (1 + fraction / 2) 2^(exponent - 127)
  const int fraction = magnitude > 1 ? magnitude & 1 : 0;
  const int exponent = scale + (magnitude > 1 ? magnitude / 2 - 1 : -1);
  if (exponent >= 255) return static_cast<uint16_t>(sign | 0x7f80);
  const int mantissa = fraction << 6;
  if (exponent > 0) return static_cast<uint16_t>(sign | exponent << 7 | mantissa);
  return static_cast<uint16_t>(sign | (0x80 | mantissa) >> (1 - exponent));
}

constexpr std::array<ScaledE2m1, 256> make_scaled_e2m1() {
  std::array<ScaledE2m1, 256> table = {};
  for (int scale = 0; scale < 256; ++scale) {
    for (int code = 0; code < 16; ++code) {
      const uint16_t bits = scaled_e2m1_bits(code, scale);
      table[static_cast<size_t>(scale)].high[static_cast<size_t>(code)] =
          static_cast<uint8_t>(bits >> 8);
      table[static_cast<size_t>(scale)].low[static_cast<size_t>(code)] =
          static_cast<uint8_t>(bits & 0xff);
    }
  }
  return table;
}
alignas(64) inline constexpr std::array<ScaledE2m1, 256> kScaledE2m1 = make_scaled_e2m1();

// The same as whole floats.
constexpr std::array<std::array<uint32_t, 16>, 256> make_float_e2m1() {
  std::array<std::array<uint32_t, 16>, 256> table = {};
  for (size_t scale = 0; scale < 256; ++scale) {
    for (size_t code = 0; code < 16; ++code) {
      const int bits = scaled_e2m1_bits(static_cast<int>(code), static_cast<int>(scale));
      table[scale][code] = static_cast<uint32_t>(bits) << 16;
    }
  }
  return table;
}
alignas(64) inline constexpr std::array<std::array<uint32_t, 16>, 256> kFloatE2m1 =
    make_float_e2m1();

// The largest FP8 scale whose product with 2^8 is a float: E4M3 codes read as binary16 values are
// 2^8 too small.
inline constexpr int kLargestScale = 254 - 8;

// The largest scale of the FP8 weights that a call uses; 0 for other formats.
inline int largest_fp8_scale(const MatmulArgs& args) {
  if (args.w->format != WeightFormat::kFp8Block32) return 0;
  uint8_t largest = 0;
  const int64_t n_blocks = (args.w->in() + 31) / 32;
  for (int64_t o = args.o_begin / 32; o <= (args.o_end - 1) / 32; ++o) {
    const uint8_t* scales = args.w->scale.row<const uint8_t>(o);
    for (int64_t b = 0; b < n_blocks; ++b) largest = std::max(largest, scales[b]);
  }
  return largest;
}

}  // namespace fathom::cpu
