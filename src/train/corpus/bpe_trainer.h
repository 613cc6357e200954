#pragma once

// Learns a byte-level BPE vocabulary and writes it as a tokenizer.json of the released file's form
// (spec/tokenizer.md 1-3). Deterministic: merges in order of count, then of the pair's bytes.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace fathom::train {

struct AddedToken {
  std::string content;
  bool special = false;
};

struct BpeOptions {
  int vocab_size = 4096;                // everything counted: bytes, merges and added tokens
  std::vector<std::string> patterns;    // isolating splits, applied one after the other
  std::vector<AddedToken> head_tokens;  // ids 0..n-1
  std::vector<AddedToken> tail_tokens;  // the last ids
  int64_t min_count = 2;                // a rarer pair is not merged
};

// The splits of the small models: single digits; a line break with the indentation that follows;
// then the released pattern, in which a newline no longer belongs to the punctuation before it.
std::vector<std::string> small_model_patterns();

// Begin, end and padding (ids 0-2) and the chat, infill and task tokens of the released vocabulary.
std::vector<AddedToken> small_model_head_tokens();
std::vector<AddedToken> small_model_tail_tokens();

struct BpeModel {
  BpeOptions options;
  // Pairs of byte strings, in order of rank.
  std::vector<std::pair<std::string, std::string>> merges;
};

class BpeTrainer {
 public:
  // Refuses patterns that do not compile and sizes without room for the 256 bytes.
  static Result<BpeTrainer> create(BpeOptions options);

  BpeTrainer(BpeTrainer&&) noexcept;
  BpeTrainer& operator=(BpeTrainer&&) noexcept;
  ~BpeTrainer();

  // Counts the pieces of a text. Ill-formed UTF-8 is refused.
  Result<void> add_text(std::string_view text);

  // Splits a text as add_text does (for tests and figures).
  Result<std::vector<std::string>> split(std::string_view text) const;

  BpeModel train() const;

 private:
  struct State;
  explicit BpeTrainer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The tokenizer.json text: vocabulary ids are head tokens, the 256 bytes in the order of the GPT-2
// alphabet, merges by rank, tail tokens.
std::string bpe_json(const BpeModel& model);

}  // namespace fathom::train
