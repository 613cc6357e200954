#pragma once

// Checks of the fused kernels on a GPU, and the speed of single words.

#include "base/result.h"
#include "train/recipe.h"

namespace fathom::train {

// Every fused word, forward and backward, against its ATen form in fp32 on random inputs; prints
// one line a word and fails if any is apart by more than bf16 rounding explains.
Result<void> selfcheck();

// Prints the time of each word at the size of the recipe's step.
void word_speeds(const Recipe& recipe);

}  // namespace fathom::train
