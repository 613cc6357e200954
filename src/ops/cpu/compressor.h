#pragma once

// The arithmetic of compressed entries. Source: spec/backbone.md 3.5, 3.6 (indexer K).

#include <cstdint>

#include "ops/backends.h"
#include "tensor/codecs.h"

namespace fathom::cpu {

// One group of m tokens: c = bf(sum_i p_i a_i), p the softmax over the group's z, channel by
// channel; sums in order of tokens, products and sums rounded one by one.
struct PoolGroup {
  float* c = nullptr;               // [width]
  const float* const* a = nullptr;  // [m] rows of `width`
  const float* const* z = nullptr;
  int64_t m = 0;
  int64_t width = 0;
};
void pool_group(CpuPath path, const PoolGroup& args);

}  // namespace fathom::cpu
