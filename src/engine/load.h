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
  int n_threads = 0;  // that look at the weights; 0: one for each hardware thread
  // May be null; called now and then with bytes of weights.
  std::function<void(int64_t done, int64_t all)> progress = {};
  bool all_weights = false;  // looked at, whatever their size
};

// Weights of at most so many bytes are looked at when they are loaded; of larger ones `fathom check
// --deep` finds bad codes, and their pages are read when they are first used.
inline constexpr int64_t kLookedAtBytes = int64_t{8} << 30;

// The parts of a model folder, in the order of who outlives whom.
struct LoadedModel {
  std::string path;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Model> model;
  std::optional<Tokenizer> tokenizer;
  std::vector<std::string> warnings;  // unknown configuration keys
};

// What stands against loading the folder, one line each; empty: load_model loads it. An error where
// its configuration or its files cannot be read at all.
Result<std::vector<std::string>> model_problems(const std::string& path,
                                                const LoadOptions& options);

// Refuses a checkpoint that is not, tensor for tensor, what the configuration expects, and weights
// with NaN or infinite values; the message names the first problem and counts the others.
Result<LoadedModel> load_model(const std::string& path, const LoadOptions& options);

// A raw prompt begins as every text does in training: with BOS, once. Added tokens are matched.
// `ids_max` as Tokenizer::encode.
Result<std::vector<TokenId>> raw_prompt_ids(const LoadedModel& loaded, std::string_view text,
                                            size_t ids_max = SIZE_MAX);

}  // namespace fathom
