#pragma once

// Speed of whole training steps.

#include <ATen/ATen.h>

#include <string>

#include "base/result.h"
#include "train/params.h"
#include "train/recipe.h"

namespace fathom::train {

struct SpeedOptions {
  std::string data, out;  // folders; `out` takes config.json and the log of the probe
  at::Device device = at::kCPU;
  ParamTypes types;
  int steps = 4;  // timed, after one that is not
};

// Prints tokens a second at each length of the recipe, without and with the candidate pool and the
// formats of cache and weights, one line each.
Result<void> speed_probe(const Recipe& recipe, const SpeedOptions& options);

}  // namespace fathom::train
