#pragma once

// Sampling flags that `run` and `chat` share.

#include "engine/generate.h"
#include "model/config.h"

namespace CLI {
class App;
}

namespace fathom {

struct GenerationFlags {
  GenerateOptions values;
  bool ignore_eos = false;

  void add_to(CLI::App& app);
  GenerateOptions options(const ModelConfig& config) const;
};

}  // namespace fathom
