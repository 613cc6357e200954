#pragma once

// Checks of the fused kernels on a GPU, and the speed probe.

#include "train/data.h"
#include "train/recipe.h"

namespace fathom::train {

// Every fused word, forward and backward, against its ATen form in fp32 on random inputs; prints
// one line a word and fails if any is apart by more than bf16 rounding explains.
Result<void> selfcheck();

// Tokens a second of whole training steps at each length of the recipe, and device time by part.
Result<void> speed_probe(const Recipe& recipe, const Dataset& data);

}  // namespace fathom::train
