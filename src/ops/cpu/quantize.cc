#include "ops/cpu/quantize.h"

#include <array>
#include <bit>

#include "tensor/codecs.h"

namespace fathom::cpu {
namespace {

constexpr int64_t kBlock = 32;  // A8, SWA8, IDX4
constexpr int64_t kKv4Block = 16;

constexpr float kOver448 = std::bit_cast<float>(0x3B124925u);  // fp32(1/448)
constexpr float kOver6 = std::bit_cast<float>(0x3E2AAAABu);    // fp32(1/6)

template <int64_t kWidth>
float largest_magnitude(const float* x) {
  float lanes[8] = {};
  for (int64_t i = 0; i < kWidth; i += 8) {
    for (int64_t j = 0; j < 8; ++j) {
      const float a = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i + j]) & 0x7fffffffu);
      lanes[j] = a > lanes[j] ? a : lanes[j];
    }
  }
  float result = lanes[0];
  for (int64_t j = 1; j < 8; ++j) result = lanes[j] > result ? lanes[j] : result;
  return result;
}

// float_to_e4m3 without branches, for |value| <= 448 (or NaN).
inline uint32_t encode_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t shifted = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f);
  const uint32_t small = shifted - 0x46800000u;
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  const uint32_t normal = (rounded >> 20) - (120u << 3);
  uint32_t code = magnitude < 0x3c800000u ? small : normal;
  code = magnitude > 0x7f800000u ? 0x7fu : code;
  return ((bits >> 24) & 0x80u) | code;
}

inline float clamp(float x, float limit) {
  x = x > limit ? limit : x;
  return x < -limit ? -limit : x;
}

template <int64_t kWidth>
void encode_e2m1(const float* x, float limit, float inverse, uint8_t* packed) {
  uint8_t codes[kWidth];
  for (int64_t i = 0; i < kWidth; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(clamp(x[i] * inverse, limit));
    const float a = std::bit_cast<float>(bits & 0x7fffffffu);
    const uint32_t magnitude = static_cast<uint32_t>(a > 0.25f) + (a >= 0.75f) + (a > 1.25f) +
                               (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    codes[i] = static_cast<uint8_t>(((bits >> 28) & 8u) | magnitude);
  }
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

}  // namespace

// Scales of A8 and IDX4 are powers of two, so multiplying by the reciprocal rounds exactly as the
// division does.
void quantize_a8(const float* x, int64_t width, uint8_t* codes, uint8_t* scales) {
  for (int64_t b = 0; b < width / kBlock; ++b) {
    const float* block = x + b * kBlock;
    float amax = largest_magnitude<kBlock>(block);
    amax = amax < 1e-4f ? 1e-4f : amax;
    const float scale = power_of_two_ceil(amax * kOver448);
    scales[b] = power_of_two_to_e8m0(scale);
    const float inverse = 1.0f / scale;
    for (int64_t i = 0; i < kBlock; ++i) {
      codes[b * kBlock + i] = static_cast<uint8_t>(encode_e4m3(clamp(block[i] * inverse, 448.0f)));
    }
  }
}

void quantize_idx4(const float* x, int64_t width, uint8_t* packed, uint8_t* scales) {
  for (int64_t b = 0; b < width / kBlock; ++b) {
    float amax = largest_magnitude<kBlock>(x + b * kBlock);
    amax = amax < 6 * 0x1p-126f ? 6 * 0x1p-126f : amax;
    const float scale = power_of_two_ceil(amax * kOver6);
    scales[b] = power_of_two_to_e8m0(scale);
    encode_e2m1<kBlock>(x + b * kBlock, 6.0f, 1.0f / scale, packed + b * kBlock / 2);
  }
}

// The scale is no power of two: the division is done element by element, as the source has it.
void quantize_kv4(const float* x, int64_t width, uint8_t* packed, uint8_t* scales) {
  for (int64_t b = 0; b < width / kKv4Block; ++b) {
    const float* block = x + b * kKv4Block;
    float amax = largest_magnitude<kKv4Block>(block);
    amax = amax < 6 * 0x1p-9f ? 6 * 0x1p-9f : amax;
    scales[b] = float_to_e4m3(amax / 6.0f);
    const float scale = e4m3_to_float(scales[b]);
    float quotients[kKv4Block];
    for (int64_t i = 0; i < kKv4Block; ++i) quotients[i] = block[i] / scale;
    encode_e2m1<kKv4Block>(quotients, 6.0f, 1.0f, packed + b * kKv4Block / 2);
  }
}

void dequantize_a8(const uint8_t* codes, const uint8_t* scales, int64_t width, float* x) {
  for (int64_t b = 0; b < width / kBlock; ++b) {
    const float scale = e8m0_to_float(scales[b]);
    for (int64_t i = b * kBlock; i < (b + 1) * kBlock; ++i) x[i] = e4m3_to_float(codes[i]) * scale;
  }
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
