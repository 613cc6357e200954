#pragma once

// Attention of one query row over its list, with a running maximum. Source: spec/backbone.md 3.8.
//
// Blocks of 64 list slots. In a block: M = max(M, its scores); p = exp(score - M); the denominator
// takes the unrounded p, summed in 16 lanes (lane j: slots j, j + 16, j + 32, j + 48) that are
// folded 8, 4, 2, 1; the numerator takes bf(p) slot after slot, fused. Empty slots count as slots
// and change nothing.

#include <cstdint>

#include "ops/backends.h"

namespace fathom::cpu {

inline constexpr int64_t kSlotsPerBlock = 64;

// The state of some heads of one row.
struct SoftmaxState {
  float* acc = nullptr;          // [n_heads, width]
  float* maximum = nullptr;      // [n_heads]
  float* denominator = nullptr;  // [n_heads]
  float* scores = nullptr;       // [n_heads, 64], work space
  int64_t n_heads = 0;
  int64_t width = 0;  // multiple of 32
};
void begin_softmax(const SoftmaxState& state);

// A run of consecutive slots of a block; vectors are keys and values at once.
struct SlotRun {
  int64_t first_slot = 0;  // in the block
  int64_t n_slots = 0;
  const float* vectors = nullptr;  // [n_slots, width]
};

// Runs of one block in order of slots. q: [n_heads, width]; scores are dot(q, vector) * scale.
struct SoftmaxBlock {
  const float* q = nullptr;
  const SlotRun* runs = nullptr;
  int n_runs = 0;
  float scale = 1.0f;
};
void attend_block(CpuPath path, const SoftmaxState& state, const SoftmaxBlock& block);

// acc = bf(acc / (denominator + exp(sink - maximum))), head by head; 0 where no slot was filled.
void finish_softmax(CpuPath path, const SoftmaxState& state, const float* sink);

}  // namespace fathom::cpu
