#pragma once

// The arithmetic of Engram's gate. Source: spec/backbone.md 3.2 (g), spec/engram.md 7.

#include <cstdint>

#include "ops/backends.h"
#include "tensor/codecs.h"

namespace fathom::cpu {

// sigmoid(z), z = copysign(sqrt(max(|d|, 1e-6)), d), d the normalised product of stream and key.
// The three sums are trees of dot.h: over h h, over key key, over fp32(h fp32(q k)) key.
struct EngramGateRow {
  const float* h = nullptr;    // [D] the stream
  const float* key = nullptr;  // [D]
  const Bf16* q_weight = nullptr;
  const Bf16* k_weight = nullptr;
  float* weighted = nullptr;  // [D], work space
  int64_t hidden = 0;
  float eps = 0;
};
float engram_gate_row(CpuPath path, const EngramGateRow& args);

}  // namespace fathom::cpu
