#pragma once

// Loads a model folder: config.json, *.safetensors, and tokenizer.json where it is there or asked
// for.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace fathom {

struct LoadOptions {
  ModelOptions model;
  bool need_tokenizer = true;
};

// The parts of a model folder, in the order of who outlives whom.
struct LoadedModel {
  std::string path;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Model> model;
  std::optional<Tokenizer> tokenizer;
  std::vector<std::string> warnings;  // unknown configuration keys
};

// Refuses a checkpoint that is not, tensor for tensor, what the configuration expects; the message
// names the first problem and counts the others.
Result<LoadedModel> load_model(const std::string& path, const LoadOptions& options);

}  // namespace fathom
