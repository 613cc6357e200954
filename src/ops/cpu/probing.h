#pragma once

// Words hold bf16 values as fp32 while they work; a probe sees them as bf16 and may change them.

#include <initializer_list>

#include "ops/ops.h"

namespace fathom::cpu {

void show_rounded(Ops& ops, const char* name, float* values, std::initializer_list<int64_t> shape);
void show_f32(Ops& ops, const char* name, float* values, std::initializer_list<int64_t> shape);

}  // namespace fathom::cpu
