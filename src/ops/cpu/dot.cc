#include "ops/cpu/dot.h"

#include <array>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "ops/cpu/dot_simd.h"

namespace fathom::cpu {
namespace {

constexpr std::array<float, 256> make_e4m3_values() {
  std::array<float, 256> values = {};
  for (size_t code = 0; code < 256; ++code) {
    values[code] = e4m3_to_float(static_cast<uint8_t>(code));
  }
  return values;
}
constexpr std::array<float, 256> kE4m3Values = make_e4m3_values();

float dot_scalar(const float* a, const float* b, int64_t K) {
  std::array<float, 16> acc = {};
  for (int64_t k = 0; k < K; k += 32) {
    for (int64_t j = 0; j < 16; ++j) {
      const float pair = std::fma(a[k + j + 16], b[k + j + 16], a[k + j] * b[k + j]);
      acc[static_cast<size_t>(j)] += pair;
    }
  }
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) acc[j] = acc[j] + acc[j + width];
  }
  return acc[0];
}

}  // namespace

void matmul_scalar(const MatmulArgs& args) {
  const int64_t K = padded_width(args.w->in());
  std::vector<float> row(static_cast<size_t>(K));
  for (int64_t o = args.o_begin; o < args.o_end; ++o) {
    expand_weight_row(*args.w, o, row.data());
    for (int64_t r = 0; r < args.n_rows; ++r) {
      const float* x = args.x + (args.x_rows != nullptr ? args.x_rows[r] : r) * K;
      const float sum = dot_scalar(x, row.data(), K);
      const int64_t at = r * args.out_stride + (o - args.o_begin);
      if (args.out_bf16 != nullptr) {
        args.out_bf16[at] = float_to_bf16(sum);
      } else {
        args.out[at] = sum;
      }
    }
  }
}

void expand_weight_row(const Weight& w, int64_t o, float* out) {
  const int64_t K = w.in();
  switch (w.format) {
    case WeightFormat::kBf16:
      for (int64_t k = 0; k < K; ++k) out[k] = bf16_to_float(w.data.row<const Bf16>(o)[k]);
      break;
    case WeightFormat::kF32:
      for (int64_t k = 0; k < K; ++k) out[k] = w.data.row<const float>(o)[k];
      break;
    case WeightFormat::kFp8Block32: {
      const uint8_t* codes = w.data.row<const uint8_t>(o);
      const uint8_t* scales = w.scale.row<const uint8_t>(o / 32);
      for (int64_t k = 0; k < K; ++k) {
        out[k] = kE4m3Values[codes[k]] * e8m0_to_float(scales[k / 32]);
      }
      break;
    }
    case WeightFormat::kFp4Row32: {
      const uint8_t* codes = w.data.row<const uint8_t>(o);
      const uint8_t* scales = w.scale.row<const uint8_t>(o);
      for (int64_t k = 0; k < K; ++k) {
        const auto code = static_cast<uint8_t>(codes[k / 2] >> (k % 2 * 4));
        out[k] = e2m1_to_float(code) * e8m0_to_float(scales[k / 32]);
      }
      break;
    }
  }
  for (int64_t k = K; k < padded_width(K); ++k) out[k] = 0.0f;
}

void expand_rows(const Activation& x, WeightFormat format, int64_t begin, int64_t end, float* out) {
  const int64_t K = x.width();
  const int64_t stride = padded_width(K);
  const bool a8 = format == WeightFormat::kFp8Block32 || format == WeightFormat::kFp4Row32;
  for (int64_t r = begin; r < end; ++r, out += stride) {
    if (a8) {
      const uint8_t* codes = x.codes.row<const uint8_t>(r);
      const uint8_t* scales = x.scales.row<const uint8_t>(r);
      for (int64_t k = 0; k < K; k += 32) {
        const float scale = e8m0_to_float(scales[k / 32]);
        for (int64_t j = k; j < k + 32; ++j) out[j] = kE4m3Values[codes[j]] * scale;
      }
    } else {
      const Bf16* values = x.bf16.row<const Bf16>(r);
      for (int64_t k = 0; k < K; ++k) out[k] = bf16_to_float(values[k]);
    }
    for (int64_t k = K; k < stride; ++k) out[k] = 0.0f;
  }
}

float dot(CpuPath path, const float* a, const float* b, int64_t K) {
  FATHOM_DCHECK(K % 32 == 0);
  switch (path) {
    case CpuPath::kScalar:
      return dot_scalar(a, b, K);
    case CpuPath::kAvx2:
      return dot_avx2(a, b, K);
    case CpuPath::kAvx512:
      return dot_avx512(a, b, K);
    case CpuPath::kBest:
      break;
  }
  FATHOM_CHECK(!"a resolved path");
  return 0.0f;
}

void matmul(CpuPath path, const MatmulArgs& args) {
  FATHOM_CHECK((args.out == nullptr) != (args.out_bf16 == nullptr));
  FATHOM_CHECK(0 <= args.o_begin && args.o_end <= args.w->out());
  switch (path) {
    case CpuPath::kScalar:
      return matmul_scalar(args);
    case CpuPath::kAvx2:
      return matmul_avx2(args);
    case CpuPath::kAvx512:
      return matmul_avx512(args);
    case CpuPath::kBest:
      break;
  }
  FATHOM_CHECK(!"a resolved path");
}

}  // namespace fathom::cpu
