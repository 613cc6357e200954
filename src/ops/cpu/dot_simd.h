#pragma once

// The bodies behind ops/cpu/dot.h. A vector body that this build or this machine lacks stops the
// program; resolve_path (ops/cpu/context.h) never names such a path.

#include "ops/cpu/dot.h"

namespace fathom::cpu {

void matmul_scalar(const MatmulArgs& args);

bool has_avx2();
float dot_avx2(const float* a, const float* b, int64_t K);
void matmul_avx2(const MatmulArgs& args);

bool has_avx512();
float dot_avx512(const float* a, const float* b, int64_t K);
void matmul_avx512(const MatmulArgs& args);

}  // namespace fathom::cpu
