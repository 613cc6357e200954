#pragma once

// The model's function over the rows of a replay, written from its definition (spec/backbone.md
// 4.5) with the mask in plain code: no schedule, no ring, no chunk and no lower bound of a window
// takes part. What happens inside one row is left to the words of ops/.

#include <span>
#include <vector>

#include "model/model.h"

namespace fathom {

struct ReplayDefinition {
  std::span<const int32_t> tokens;  // [N]
  int64_t prefix = 0;        // entries of groups that end below it come from an unbroken pass
  int64_t encoder_from = 0;  // encoder rows [encoder_from, N) see window keys of these rows only
  int64_t decoder_from = 0;  // the same for the decoder
};

// Logits [N - decoder_from, V] of the decoder's rows. `token_map` as in Model::make, not empty.
std::vector<float> masked_logits(const Model& model, Ops& ops, std::span<const int32_t> token_map,
                                 const ReplayDefinition& definition);

}  // namespace fathom
