#pragma once

// Products of rows and weights. spec/backbone.md 2.3 and 3.9
// Rows are expanded once to fp32, threads share the outputs in units of 32, and every sum is the
// tree of ops/cpu/dot.h.

#include "ops/cpu/context.h"
#include "ops/words.h"

namespace fathom::cpu {

void linear(const Context& context, const LinearArgs& args);
void grouped_linear(const Context& context, const GroupedLinearArgs& args);

// Rows [0, n_rows) of x as fp32 in out, by all threads.
void expand_all_rows(const Context& context, const Activation& x, WeightFormat format, float* out);

// Outputs that one range of a parallel loop should have at least, so that its work is worth a
// thread: in units of 32.
int64_t output_grain(int64_t n_rows, int64_t K);

}  // namespace fathom::cpu
