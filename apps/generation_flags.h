#pragma once

// Sampling flags that `run` and `chat` share.

#include <string>
#include <vector>

#include "apps/verb.h"
#include "engine/generate.h"
#include "model/config.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fathom {

struct GenerationFlags {
  GenerateOptions values;
  bool ignore_eos = false;

  void add_to(CLI::App& app);
  GenerateOptions options(const ModelConfig& config) const;

  // Names the first option typed that chooses among tokens where the temperature leaves no choice;
  // empty: there is none.
  std::string hint(const TypedOptions& typed) const;

  // What to say of an answer that the limit or the context cut; empty: nothing did.
  std::string cut_note(const Generated& result, int64_t context) const;

  CLI::Option* stop_option = nullptr;
  const CLI::Option* limit_option = nullptr;  // -n

 private:
  std::vector<const CLI::Option*> choosing_;
};

}  // namespace fathom
