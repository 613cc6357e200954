#include "ops/cpu/quantize.h"

#include <array>
#include <bit>

#include "ops/cpu/lanes.h"
#include "tensor/codecs.h"

namespace fathom::cpu {
namespace {

constexpr int64_t kBlock = 32;  // A8, SWA8, IDX4
constexpr int64_t kKv4Block = 16;

constexpr float kOver448 = std::bit_cast<float>(0x3B124925u);  // fp32(1/448)
constexpr float kOver6 = std::bit_cast<float>(0x3E2AAAABu);    // fp32(1/6)

// Everything below compares magnitudes as integers and selects by masks: a compiler does not
// vectorise selections between floats, whose operations it must not do in vain.

constexpr uint32_t kInfinity = 0x7f800000u;

// All ones where the condition holds.
[[gnu::always_inline]] inline uint32_t mask_of(bool condition) {
  return 0u - static_cast<uint32_t>(condition);
}
[[gnu::always_inline]] inline uint32_t select(uint32_t mask, uint32_t a, uint32_t b) {
  return (a & mask) | (b & ~mask);
}
[[gnu::always_inline]] inline uint32_t magnitude_of(float x) {
  return std::bit_cast<uint32_t>(x) & 0x7fffffffu;
}

// NaN counts as 0.
template <int64_t kWidth>
[[gnu::always_inline]] inline float largest_magnitude(const float* x) {
  uint32_t lanes[8] = {};
  for (int64_t i = 0; i < kWidth; i += 8) {
    for (int64_t j = 0; j < 8; ++j) {
      uint32_t a = magnitude_of(x[i + j]);
      a &= mask_of(a <= kInfinity);
      lanes[j] = a > lanes[j] ? a : lanes[j];
    }
  }
  uint32_t result = lanes[0];
  for (int64_t j = 1; j < 8; ++j) result = lanes[j] > result ? lanes[j] : result;
  return std::bit_cast<float>(result);
}

// float_to_e4m3(clamp(value, +-448)); see there.
[[gnu::always_inline]] inline uint32_t encode_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t whole = bits & 0x7fffffffu;
  const uint32_t magnitude = select(mask_of(whole > 0x43e00000u), 0x43e00000u, whole);
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f);
  const uint32_t normal = (magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  const uint32_t code =
      select(mask_of(magnitude < 0x3c800000u), small - 0x46800000u, normal - (120u << 3));
  return ((bits >> 24) & 0x80u) | select(mask_of(whole > kInfinity), 0x7fu, code);
}

// e4m3_to_float; see there.
[[gnu::always_inline]] inline float decode_e4m3(uint8_t code) {
  const uint32_t magnitude = code & 0x7fu;
  const float value = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  const uint32_t bits =
      select(mask_of(magnitude == 0x7fu), 0x7fc00000u, std::bit_cast<uint32_t>(value));
  return std::bit_cast<float>(bits | (static_cast<uint32_t>(code & 0x80u) << 24));
}

// float_to_e2m1; see there. Above 5 everything is 6, so nothing need be clamped.
[[gnu::always_inline]] inline uint32_t encode_e2m1(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t a = bits & 0x7fffffffu;
  const uint32_t magnitude = static_cast<uint32_t>(a > 0x3e800000u) +   // 0.25
                             static_cast<uint32_t>(a >= 0x3f400000u) +  // 0.75
                             static_cast<uint32_t>(a > 0x3fa00000u) +   // 1.25
                             static_cast<uint32_t>(a >= 0x3fe00000u) +  // 1.75
                             static_cast<uint32_t>(a > 0x40200000u) +   // 2.5
                             static_cast<uint32_t>(a >= 0x40600000u) +  // 3.5
                             static_cast<uint32_t>(a > 0x40a00000u);    // 5
  return ((bits >> 28) & 8u) | (magnitude & mask_of(a <= kInfinity));
}

template <int64_t kWidth>
[[gnu::always_inline]] inline void pack_e2m1(const float* x, float inverse, uint8_t* packed) {
  uint32_t codes[kWidth];
  for (int64_t i = 0; i < kWidth; ++i) codes[i] = encode_e2m1(x[i] * inverse);
  for (int64_t i = 0; i < kWidth / 2; ++i) {
    packed[i] = static_cast<uint8_t>(codes[2 * i] | (codes[2 * i + 1] << 4));
  }
}

// The two values of every packed byte.
struct E2m1Pairs {
  std::array<float, 512> values;
};
constexpr E2m1Pairs make_pairs() {
  E2m1Pairs pairs = {};
  for (size_t byte = 0; byte < 256; ++byte) {
    pairs.values[2 * byte] = kE2m1Values[byte & 15u];
    pairs.values[2 * byte + 1] = kE2m1Values[byte >> 4];
  }
  return pairs;
}
constexpr E2m1Pairs kPairs = make_pairs();

template <int64_t kWidth>
void decode_e2m1(const uint8_t* packed, float scale, float* x) {
  for (int64_t i = 0; i < kWidth / 2; ++i) {
    const float* pair = &kPairs.values[2 * static_cast<size_t>(packed[i])];
    x[2 * i] = pair[0] * scale;
    x[2 * i + 1] = pair[1] * scale;
  }
}

// The bodies take their arguments by value: codes are bytes, which may alias anything that they
// would otherwise be read from in every step.
//
// Scales of A8 and IDX4 are powers of two, so multiplying by the reciprocal rounds exactly as the
// division does.
[[gnu::always_inline]] inline void encode_a8(const float* __restrict x, int64_t width,
                                             uint8_t* __restrict codes,
                                             uint8_t* __restrict scales) {
  for (int64_t b = 0; b < width / kBlock; ++b, x += kBlock, codes += kBlock) {
    float amax = largest_magnitude<kBlock>(x);
    amax = amax < 1e-4f ? 1e-4f : amax;
    const float scale = power_of_two_ceil(amax * kOver448);
    scales[b] = power_of_two_to_e8m0(scale);
    const float inverse = 1.0f / scale;
    uint32_t wide[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) wide[i] = encode_e4m3(x[i] * inverse);
    for (int64_t i = 0; i < kBlock; ++i) codes[i] = static_cast<uint8_t>(wide[i]);
  }
}

[[gnu::always_inline]] inline void encode_idx4(const float* __restrict x, int64_t width,
                                               uint8_t* __restrict packed,
                                               uint8_t* __restrict scales) {
  for (int64_t b = 0; b < width / kBlock; ++b, x += kBlock, packed += kBlock / 2) {
    float amax = largest_magnitude<kBlock>(x);
    amax = amax < 6 * 0x1p-126f ? 6 * 0x1p-126f : amax;
    const float scale = power_of_two_ceil(amax * kOver6);
    scales[b] = power_of_two_to_e8m0(scale);
    pack_e2m1<kBlock>(x, 1.0f / scale, packed);
  }
}

// The scale is no power of two: the division is done element by element, as the source has it.
[[gnu::always_inline]] inline void encode_kv4(const float* __restrict x, int64_t width,
                                              uint8_t* __restrict packed,
                                              uint8_t* __restrict scales) {
  for (int64_t b = 0; b < width / kKv4Block; ++b, x += kKv4Block, packed += kKv4Block / 2) {
    float amax = largest_magnitude<kKv4Block>(x);
    amax = amax < 6 * 0x1p-9f ? 6 * 0x1p-9f : amax;
    scales[b] = float_to_e4m3(amax / 6.0f);
    const float scale = e4m3_to_float(scales[b]);
    float quotients[kKv4Block];
    for (int64_t i = 0; i < kKv4Block; ++i) quotients[i] = x[i] / scale;
    pack_e2m1<kKv4Block>(quotients, 1.0f, packed);
  }
}

[[gnu::always_inline]] inline void decode_a8(const uint8_t* __restrict codes,
                                             const uint8_t* __restrict scales, int64_t width,
                                             float* __restrict x) {
  for (int64_t b = 0; b < width / kBlock; ++b, x += kBlock, codes += kBlock) {
    const float scale = e8m0_to_float(scales[b]);
    for (int64_t i = 0; i < kBlock; ++i) x[i] = decode_e4m3(codes[i]) * scale;
  }
}

}  // namespace

void quantize_a8(CpuPath path, const float* x, int64_t width, uint8_t* codes, uint8_t* scales) {
  on_path(
      path, [=]() __attribute__((always_inline)) { encode_a8(x, width, codes, scales); });
}

void quantize_idx4(CpuPath path, const float* x, int64_t width, uint8_t* packed, uint8_t* scales) {
  on_path(
      path, [=]() __attribute__((always_inline)) { encode_idx4(x, width, packed, scales); });
}

void quantize_kv4(CpuPath path, const float* x, int64_t width, uint8_t* packed, uint8_t* scales) {
  on_path(
      path, [=]() __attribute__((always_inline)) { encode_kv4(x, width, packed, scales); });
}

void dequantize_a8(CpuPath path, const uint8_t* codes, const uint8_t* scales, int64_t width,
                   float* x) {
  on_path(
      path, [=]() __attribute__((always_inline)) { decode_a8(codes, scales, width, x); });
}

void dequantize_idx4(const uint8_t* packed, const uint8_t* scales, int64_t width, float* x) {
  for (int64_t b = 0; b < width / kBlock; ++b) {
    decode_e2m1<kBlock>(packed + b * kBlock / 2, e8m0_to_float(scales[b]), x + b * kBlock);
  }
}

void dequantize_kv4(const uint8_t* packed, const uint8_t* scales, int64_t width, float* x) {
  for (int64_t b = 0; b < width / kKv4Block; ++b) {
    decode_e2m1<kKv4Block>(packed + b * kKv4Block / 2, e4m3_to_float(scales[b]), x + b * kKv4Block);
  }
}

}  // namespace fathom::cpu
