#include "ops/cpu/lanes.h"

#include <algorithm>
#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fathom::cpu {
namespace {

void accumulate_scalar(const AccumulateArgs& a) {
  for (int64_t h = 0; h < a.n_heads; ++h) {
    float* out = a.out + h * a.width;
    for (int64_t s = 0; s < a.n_slots; ++s) {
      const float p = a.p[h * a.p_stride + s];
      const float* v = a.v + s * a.width;
      for (int64_t c = 0; c < a.width; ++c) out[c] = std::fma(p, v[c], out[c]);
    }
  }
}

#if defined(__x86_64__)

constexpr int64_t kStrip = 16;     // channels of a tile
constexpr int64_t kSlotsMax = 64;  // of a strip; 4 KiB

// Channels [c, c + 16) of slots [s, s + n) side by side: rows of a power-of-two stride would fall
// into few sets of the first cache and be fetched again for every tile of heads.
void copy_strip(const AccumulateArgs& a, int64_t s, int64_t n, int64_t c, float* strip) {
  const float* v = a.v + s * a.width + c;
  for (int64_t i = 0; i < n; ++i, v += a.width, strip += kStrip) std::copy_n(v, kStrip, strip);
}

// A tile of heads x 16 channels stays in registers over n slots from slot s on.
struct Strip {
  const float* v = nullptr;
  int64_t s = 0;
  int64_t n = 0;
  int64_t c = 0;
};

// Accumulators are named: as arrays they would be stored in every step.
[[gnu::target("avx2,fma")]] void four_heads_avx2(const AccumulateArgs& a, const Strip& strip,
                                                 int64_t h) {
  float* out0 = a.out + h * a.width + strip.c;
  float* out1 = out0 + a.width;
  float* out2 = out1 + a.width;
  float* out3 = out2 + a.width;
  __m256 a0 = _mm256_loadu_ps(out0), b0 = _mm256_loadu_ps(out0 + 8);
  __m256 a1 = _mm256_loadu_ps(out1), b1 = _mm256_loadu_ps(out1 + 8);
  __m256 a2 = _mm256_loadu_ps(out2), b2 = _mm256_loadu_ps(out2 + 8);
  __m256 a3 = _mm256_loadu_ps(out3), b3 = _mm256_loadu_ps(out3 + 8);
  const float* p = a.p + h * a.p_stride + strip.s;
  const float* v = strip.v;
  for (int64_t s = 0; s < strip.n; ++s, ++p, v += kStrip) {
    const __m256 va = _mm256_loadu_ps(v);
    const __m256 vb = _mm256_loadu_ps(v + 8);
    const __m256 p0 = _mm256_broadcast_ss(p);
    const __m256 p1 = _mm256_broadcast_ss(p + a.p_stride);
    const __m256 p2 = _mm256_broadcast_ss(p + 2 * a.p_stride);
    const __m256 p3 = _mm256_broadcast_ss(p + 3 * a.p_stride);
    a0 = _mm256_fmadd_ps(p0, va, a0);
    b0 = _mm256_fmadd_ps(p0, vb, b0);
    a1 = _mm256_fmadd_ps(p1, va, a1);
    b1 = _mm256_fmadd_ps(p1, vb, b1);
    a2 = _mm256_fmadd_ps(p2, va, a2);
    b2 = _mm256_fmadd_ps(p2, vb, b2);
    a3 = _mm256_fmadd_ps(p3, va, a3);
    b3 = _mm256_fmadd_ps(p3, vb, b3);
  }
  _mm256_storeu_ps(out0, a0);
  _mm256_storeu_ps(out0 + 8, b0);
  _mm256_storeu_ps(out1, a1);
  _mm256_storeu_ps(out1 + 8, b1);
  _mm256_storeu_ps(out2, a2);
  _mm256_storeu_ps(out2 + 8, b2);
  _mm256_storeu_ps(out3, a3);
  _mm256_storeu_ps(out3 + 8, b3);
}

[[gnu::target("avx2,fma")]] void one_head_avx2(const AccumulateArgs& a, const Strip& strip,
                                               int64_t h) {
  float* out = a.out + h * a.width + strip.c;
  __m256 a0 = _mm256_loadu_ps(out);
  __m256 b0 = _mm256_loadu_ps(out + 8);
  const float* p = a.p + h * a.p_stride + strip.s;
  const float* v = strip.v;
  for (int64_t s = 0; s < strip.n; ++s, ++p, v += kStrip) {
    const __m256 p0 = _mm256_broadcast_ss(p);
    a0 = _mm256_fmadd_ps(p0, _mm256_loadu_ps(v), a0);
    b0 = _mm256_fmadd_ps(p0, _mm256_loadu_ps(v + 8), b0);
  }
  _mm256_storeu_ps(out, a0);
  _mm256_storeu_ps(out + 8, b0);
}

[[gnu::target("avx512f")]] void four_heads_avx512(const AccumulateArgs& a, const Strip& strip,
                                                  int64_t h) {
  float* out0 = a.out + h * a.width + strip.c;
  float* out1 = out0 + a.width;
  float* out2 = out1 + a.width;
  float* out3 = out2 + a.width;
  __m512 a0 = _mm512_loadu_ps(out0);
  __m512 a1 = _mm512_loadu_ps(out1);
  __m512 a2 = _mm512_loadu_ps(out2);
  __m512 a3 = _mm512_loadu_ps(out3);
  const float* p = a.p + h * a.p_stride + strip.s;
  const float* v = strip.v;
  for (int64_t s = 0; s < strip.n; ++s, ++p, v += kStrip) {
    const __m512 va = _mm512_loadu_ps(v);
    a0 = _mm512_fmadd_ps(_mm512_set1_ps(*p), va, a0);
    a1 = _mm512_fmadd_ps(_mm512_set1_ps(p[a.p_stride]), va, a1);
    a2 = _mm512_fmadd_ps(_mm512_set1_ps(p[2 * a.p_stride]), va, a2);
    a3 = _mm512_fmadd_ps(_mm512_set1_ps(p[3 * a.p_stride]), va, a3);
  }
  _mm512_storeu_ps(out0, a0);
  _mm512_storeu_ps(out1, a1);
  _mm512_storeu_ps(out2, a2);
  _mm512_storeu_ps(out3, a3);
}

void heads(CpuPath path, const AccumulateArgs& a, const Strip& strip) {
  int64_t h = 0;
  for (; h + 4 <= a.n_heads; h += 4) {
    if (path == CpuPath::kAvx512) {
      four_heads_avx512(a, strip, h);
    } else {
      four_heads_avx2(a, strip, h);
    }
  }
  for (; h < a.n_heads; ++h) one_head_avx2(a, strip, h);
}

void accumulate_strips(CpuPath path, const AccumulateArgs& a) {
  alignas(64) float strip[kSlotsMax * kStrip];
  for (int64_t s = 0; s < a.n_slots; s += kSlotsMax) {
    const int64_t n = std::min(kSlotsMax, a.n_slots - s);
    for (int64_t c = 0; c < a.width; c += kStrip) {
      copy_strip(a, s, n, c, strip);
      heads(path, a, {strip, s, n, c});
    }
  }
}

#endif

}  // namespace

void accumulate(CpuPath path, const AccumulateArgs& args) {
#if defined(__x86_64__)
  if (path == CpuPath::kAvx2 || path == CpuPath::kAvx512) return accumulate_strips(path, args);
#endif
  (void)path;
  accumulate_scalar(args);
}

void widen(CpuPath path, const Bf16* in, int64_t n, float* out) {
  on_path(
      path, [=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_float(in[i]);
      });
}

void narrow(CpuPath path, const float* in, int64_t n, Bf16* out) {
  on_path(
      path, [=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) out[i] = float_to_bf16(in[i]);
      });
}

}  // namespace fathom::cpu
