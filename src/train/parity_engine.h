#pragma once

// The engine's side of parity: a model folder loaded as the engine loads it, and what its words
// show while a passage is prefilled in one step of the exact schedule.

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "model/config.h"
#include "text/tokenizer.h"

namespace fathom::train {

// Values by the names of tests/golden/README.md: bf16, fp32, int32 and int64 as they are.
struct EngineTrace {
  std::map<std::string, at::Tensor> values;
  at::Tensor logits;  // [n, vocab] fp32
};

class ParityEngine {
 public:
  // `tokens`: the longest passage.
  static Result<std::unique_ptr<ParityEngine>> open(const std::string& model, int64_t tokens);
  ~ParityEngine();

  const ModelConfig& config() const;
  Result<const Tokenizer*> tokenizer() const;  // an error where the folder has none
  at::Tensor engram_map() const;               // [vocab] int64: the compressed id of each token

  Result<EngineTrace> trace(std::span<const TokenId> ids);

 private:
  struct Parts;
  explicit ParityEngine(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace fathom::train
