#pragma once

// Float codecs, exact in both directions. Source: spec/backbone.md 2.1 and 2.2.
// Encoders round to nearest, ties to even; E4M3 saturates at +-448, E2M1 at +-6.

#include <bit>
#include <cmath>
#include <cstdint>

namespace fathom {

using Bf16 = uint16_t;  // the bits of a bfloat16

constexpr float bf16_to_float(Bf16 bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr Bf16 float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<Bf16>((bits >> 16) | 0x40u);
  return static_cast<Bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// The value of a float once it was rounded to bfloat16: bf(x) of the specification.
constexpr float round_to_bf16(float value) { return bf16_to_float(float_to_bf16(value)); }

constexpr float e4m3_to_float(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  if ((code & 0x7fu) == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  // The 7 bits land on exponent and mantissa; the product with 2^120 moves the bias from 7 to 127
  // and turns subnormal codes into normal floats.
  const float magnitude =
      std::bit_cast<float>(static_cast<uint32_t>(code & 0x7fu) << 20) * 0x1p120f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

constexpr uint8_t float_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint8_t sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7fu;
  const float absolute = std::bit_cast<float>(magnitude);
  if (absolute >= 448.0f) return sign | 0x7eu;
  if (absolute < 0x1p-6f) {
    // Subnormal step 2^-9: adding 2^14 puts one ulp exactly there, so the addition rounds.
    const float shifted = absolute + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000u));
  }
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  const uint32_t code = (rounded >> 20) - (120u << 3);
  return static_cast<uint8_t>(sign | (code > 0x7eu ? 0x7eu : code));
}

constexpr float e8m0_to_float(uint8_t code) {
  if (code == 255) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}

// value must be a power of two in [2^-127, 2^127].
constexpr uint8_t power_of_two_to_e8m0(float value) {
  return static_cast<uint8_t>((std::bit_cast<uint32_t>(value) >> 23) & 0xffu);
}

inline constexpr float kE2m1Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                          -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

constexpr float e2m1_to_float(uint8_t code) { return kE2m1Values[code & 15u]; }

constexpr uint8_t float_to_e2m1(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const float a = std::bit_cast<float>(bits & 0x7fffffffu);
  const int magnitude = static_cast<int>(a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) +
                        (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>(((bits >> 28) & 8u) | static_cast<uint32_t>(magnitude));
}

// 2^ceil(log2 t) for t > 0 by the bits of t: pow2ceil of spec/backbone.md 2.2. Results below 2^-126
// do not occur: callers clamp t.
constexpr float power_of_two_ceil(float t) {
  const uint32_t bits = std::bit_cast<uint32_t>(t);
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1 : 0);
  return std::bit_cast<float>(exponent << 23);
}

}  // namespace fathom
