#pragma once

// Routed and shared experts. spec/backbone.md 3.10
//
// Rows are grouped by expert; a (row, chosen expert) pair is a slot, slots are ordered by expert,
// then row, and the shared expert's slots come last. Loop one makes w2's input of all slots, loop
// two the outputs, a range of columns for every row: the sum over experts never leaves its thread.

#include <functional>

#include "ops/cpu/context.h"
#include "ops/words.h"

namespace fathom::cpu {

// `show_shared`, where not null, is called with the shared expert's output [N, D] bf16 before it is
// added, and may overwrite it.
void experts(const Context& context, const ExpertsArgs& args,
             const std::function<void(const Tensor&)>* show_shared);

// The input of w2 from the outputs of w1 and w3, all fp32 values of bf16, in place in `gate`.
// limit 0: no clamp.
void swiglu(float* gate, const float* up, int64_t n, float limit, float route_weight);

}  // namespace fathom::cpu
