#include "ops/cpu/dot_simd.h"

#include "base/check.h"
#include "ops/cpu/dot_tables.h"
#include "ops/cpu/scratch.h"

// Targets without a fused multiply-add cannot follow the summation tree.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/dot_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#include "ops/cpu/dot_few-inl.h"
#include "ops/cpu/dot_many-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fathom::cpu {
namespace HWY_NAMESPACE {
namespace {

void matmul_vector(const MatmulArgs& args) {
  if (args.o_begin >= args.o_end) return;
  const int largest_scale = largest_fp8_scale(args);
  if (args.w->in() % 32 != 0 || largest_scale > kLargestScale) return matmul_scalar(args);
  const bool few = args.n_rows <= kFew;
#if HWY_TARGET == HWY_AVX2
  const bool narrow = args.w->in() <= kWidest;
#endif
  switch (args.w->format) {
    case WeightFormat::kBf16:
      return few ? few_rows<Bf16Row>(args) : many_rows<Bf16Row>(args);
    case WeightFormat::kF32:
      return few ? few_rows<F32Row>(args) : many_rows<F32Row>(args);
    case WeightFormat::kFp8Block32:
#if HWY_TARGET == HWY_AVX2
      if (few && narrow && scales_fit_x(args)) return few_rows<Fp8EvenOddRow>(args);
#endif
      return few ? few_rows<Fp8Row>(args) : many_rows<Fp8Row>(args);
    case WeightFormat::kFp4Row32:
#if HWY_TARGET == HWY_AVX2
      if (few && narrow) return few_rows<Fp4FoursRow>(args);
#endif
      return few ? few_rows<Fp4Row>(args) : many_rows<Fp4Row>(args);
  }
}

}  // namespace

float dot_body(const float* a, const float* b, int64_t K) { return dot_vector(a, b, K); }
void matmul_body(const MatmulArgs& args) { matmul_vector(args); }

}  // namespace HWY_NAMESPACE
}  // namespace fathom::cpu
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace fathom::cpu {

#if HWY_TARGETS & HWY_AVX2
bool has_avx2() { return (hwy::SupportedTargets() & HWY_AVX2) != 0; }
float dot_avx2(const float* a, const float* b, int64_t K) { return N_AVX2::dot_body(a, b, K); }
void matmul_avx2(const MatmulArgs& args) { N_AVX2::matmul_body(args); }
#else
bool has_avx2() { return false; }
float dot_avx2(const float*, const float*, int64_t) { return FATHOM_CHECK(has_avx2()), 0.0f; }
void matmul_avx2(const MatmulArgs&) { FATHOM_CHECK(has_avx2()); }
#endif

#if HWY_TARGETS & HWY_AVX3
bool has_avx512() { return (hwy::SupportedTargets() & HWY_AVX3) != 0; }
float dot_avx512(const float* a, const float* b, int64_t K) { return N_AVX3::dot_body(a, b, K); }
void matmul_avx512(const MatmulArgs& args) { N_AVX3::matmul_body(args); }
#else
bool has_avx512() { return false; }
float dot_avx512(const float*, const float*, int64_t) { return FATHOM_CHECK(has_avx512()), 0.0f; }
void matmul_avx512(const MatmulArgs&) { FATHOM_CHECK(has_avx512()); }
#endif

}  // namespace fathom::cpu
#endif
