#pragma once

// Writes stored cases of any model in the form of tests/golden/README.md, from the engine itself.
// They say nothing about the reference; they try the comparison at other shapes.

#include <string>

#include "model/model.h"

namespace fathom {

// short, masked, prefill, decode, decode_full, long and replay, with their fp32score forms where
// the golden data have some. The model was loaded with the scores that `suffix` names.
void write_cases(const std::string& folder, const Model& model, Ops& ops,
                 const std::string& suffix);

}  // namespace fathom
