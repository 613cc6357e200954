#include "ops/cpu/lanes.h"

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

// One tile of kHeads x 16 channels stays in registers over all slots.
template <int kHeads>
[[gnu::target("avx2,fma")]] void tile_avx2(const AccumulateArgs& a, int64_t h0, int64_t c0) {
  __m256 acc[kHeads][2];
  for (int h = 0; h < kHeads; ++h) {
    const float* out = a.out + (h0 + h) * a.width + c0;
    acc[h][0] = _mm256_loadu_ps(out);
    acc[h][1] = _mm256_loadu_ps(out + 8);
  }
  const float* v = a.v + c0;
  const float* p = a.p + h0 * a.p_stride;
  for (int64_t s = 0; s < a.n_slots; ++s) {
    const __m256 v0 = _mm256_loadu_ps(v);
    const __m256 v1 = _mm256_loadu_ps(v + 8);
    for (int h = 0; h < kHeads; ++h) {
      const __m256 weight = _mm256_broadcast_ss(p + h * a.p_stride + s);
      acc[h][0] = _mm256_fmadd_ps(weight, v0, acc[h][0]);
      acc[h][1] = _mm256_fmadd_ps(weight, v1, acc[h][1]);
    }
    v += a.width;
  }
  for (int h = 0; h < kHeads; ++h) {
    float* out = a.out + (h0 + h) * a.width + c0;
    _mm256_storeu_ps(out, acc[h][0]);
    _mm256_storeu_ps(out + 8, acc[h][1]);
  }
}

template <int kHeads>
[[gnu::target("avx512f")]] void tile_avx512(const AccumulateArgs& a, int64_t h0, int64_t c0) {
  __m512 acc[kHeads];
  for (int h = 0; h < kHeads; ++h) acc[h] = _mm512_loadu_ps(a.out + (h0 + h) * a.width + c0);
  const float* v = a.v + c0;
  const float* p = a.p + h0 * a.p_stride;
  for (int64_t s = 0; s < a.n_slots; ++s) {
    const __m512 v0 = _mm512_loadu_ps(v);
    for (int h = 0; h < kHeads; ++h) {
      acc[h] = _mm512_fmadd_ps(_mm512_set1_ps(p[h * a.p_stride + s]), v0, acc[h]);
    }
    v += a.width;
  }
  for (int h = 0; h < kHeads; ++h) _mm512_storeu_ps(a.out + (h0 + h) * a.width + c0, acc[h]);
}

void accumulate_avx2(const AccumulateArgs& a) {
  for (int64_t c = 0; c < a.width; c += 16) {
    int64_t h = 0;
    for (; h + 6 <= a.n_heads; h += 6) tile_avx2<6>(a, h, c);
    for (; h + 4 <= a.n_heads; h += 4) tile_avx2<4>(a, h, c);
    for (; h < a.n_heads; ++h) tile_avx2<1>(a, h, c);
  }
}

void accumulate_avx512(const AccumulateArgs& a) {
  for (int64_t c = 0; c < a.width; c += 16) {
    int64_t h = 0;
    for (; h + 16 <= a.n_heads; h += 16) tile_avx512<16>(a, h, c);
    for (; h + 4 <= a.n_heads; h += 4) tile_avx512<4>(a, h, c);
    for (; h < a.n_heads; ++h) tile_avx512<1>(a, h, c);
  }
}

#endif

}  // namespace

void accumulate(CpuPath path, const AccumulateArgs& args) {
#if defined(__x86_64__)
  if (path == CpuPath::kAvx2) return accumulate_avx2(args);
  if (path == CpuPath::kAvx512) return accumulate_avx512(args);
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
