#pragma once

// The words of ops.h in the exact numerics: every rounding point of spec/backbone.md 3.12, every
// sum in the canonical order (docs/design.md section 7), exp and its kin by base/math.h. Sums over
// channels are the pair tree of canonical_rows.h; sums over streams, tokens of a group, chosen
// experts and experts run in order, each product and sum rounded. What is left is element by
// element, where ATen rounds once as well.
//
// CPU tensors of bf16 or fp32; a tensor of another kind stops the program. No gradient.

#include "train/ops.h"

namespace fathom::train::canonical {

const Words& words();

// The same with the products of rows summed in fp64: another legal order of the same sums, whose
// effect measures what is open (parity).
const Words& wide_words();

// Element by element: 1 / (1 + exp(-x)) of base/math.h.
Tensor sigmoid_of(const Tensor& x);

}  // namespace fathom::train::canonical
