#pragma once

// Probe: a look inside the words. A backend offers each intermediate by name ("L03.attn.q"; the
// names are those of tests/golden/README.md) as soon as it is complete. A probe may read it,
// compare it, or overwrite it in place (teacher forcing). Slow; for tests, `fathom check` and
// debugging only.

#include <string>

#include "tensor/tensor.h"

namespace fathom {

class Probe {
 public:
  virtual ~Probe() = default;
  virtual void value(const std::string& name, const Tensor& tensor) = 0;
};

}  // namespace fathom
