#pragma once

// The residual streams between two sites, and what is still to be added to them: the sum is left to
// the next site's mhc_step, which reads and writes each residual element once.

#include <string>

#include "model/model.h"

namespace fathom {

struct Model::Stream {
  Tensor residual;               // [N, n, D]
  Tensor pre;                    // [N, n] the mix that the next site collapses with
  Tensor y;                      // [N, D] output of the last sub-layer; empty: already added
  MhcCoefficients coefficients;  // of the site that fed it
  MhcCoefficients predicted;     // where the next site writes
  std::string name;              // of the residual once y was added ("L03.mid")

  void add(const Tensor& output, std::string residual_name) {
    y = output;
    name = std::move(residual_name);
  }
};

inline std::string layer_scope(int layer) {
  return (layer < 10 ? "L0" : "L") + std::to_string(layer) + ".";
}

}  // namespace fathom
