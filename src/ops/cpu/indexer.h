#pragma once

// The arithmetic of the indexer. Source: spec/backbone.md 3.6, 3.7.

#include <cstdint>

#include "ops/backends.h"
#include "ops/words.h"
#include "tensor/codecs.h"

namespace fathom::cpu {

// scores[e] = sum_h w[h] relu(dots[h][e]), over heads in order.
// kF32: each term enters by one fused step. kBf16: dot, relu and product are rounded to bf16, the
// fp32 sum is rounded once.
struct CombineHeads {
  float* scores = nullptr;      // [n]
  const float* dots = nullptr;  // [n_heads, stride]
  int64_t stride = 0;
  const float* w = nullptr;  // [n_heads]
  int64_t n_heads = 0;
  int64_t n = 0;
  IndexScores mode = IndexScores::kF32;
};
void combine_heads(CpuPath path, const CombineHeads& args);

// w[h] = bf(weights[h] * di^-0.5 Hi^-0.5)
void index_weights(const Bf16* weights, int64_t n_heads, int64_t head_width, float* w);

}  // namespace fathom::cpu
