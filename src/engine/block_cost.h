#pragma once

// What a block of prefix-lifetime state costs to compute again: floating-point operations of the
// layers that run over every prompt token. Multiply and add count as two; norms, rotations and
// quantisers are left out. Source: shapes of spec/backbone.md 3.

#include "cache/prefix_cache.h"
#include "model/config.h"

namespace fathom {

// A token behind `position` others costs first + position * slope: index scores of sources are of
// all entries before the token, everything else is of a bounded number.
struct TokenCost {
  double first = 0;
  double slope = 0;
};
TokenCost encoder_cost(const ModelConfig& config);

// Of all tokens of a block.
BlockCost block_cost(const TokenCost& token);

}  // namespace fathom
