#pragma once

// Synthetic recall: facts hidden in real text, and questions about them further on. Teaches (train
// split) and measures (held-out split) retrieval through the index (docs/design/train.md,
// "The recall task"). Everything follows from the seed and the filler.
//
// The splits are disjoint in keys and in values: a key (two words) and a number belong to one split
// each, decided by a hash. The question forms are common to both.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"
#include "train/corpus/synth_text_rng.h"

namespace fathom::train {

enum class RecallSplit { kTrain, kHeldOut };

bool key_is_held_out(std::string_view key);
bool number_is_held_out(int64_t number);

// Real text as one run of tokens, from which pieces that end with a line are cut.
class Filler {
 public:
  // Joins the documents, of which `where` tells in messages. kInvalid where no token ends a line.
  static Result<Filler> make(const Tokenizer& tokenizer, const std::vector<std::string>& documents,
                             std::string where);

  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }

  // `count` consecutive tokens from a random place; the last one ends a line. kInvalid where the
  // text is too short for that.
  Result<std::vector<TokenId>> cut(int64_t count, SynthRng& rng) const;

  // Whether a token ends a line.
  bool ends_line(TokenId id) const { return line_end_[static_cast<size_t>(id)]; }

 private:
  Filler() = default;

  std::string where_;
  std::vector<TokenId> ids_;
  std::vector<bool> line_end_;      // by token id
  std::vector<int64_t> line_ends_;  // positions after a token that ends a line
};

struct TokenRow {
  std::vector<TokenId> ids;
  std::vector<uint8_t> weights;  // loss weight of predicting ids[i]
};

inline constexpr uint8_t kTextWeight = 1;
inline constexpr uint8_t kAnswerWeight = 3;  // an answer; the first value of a fact has weight 0

// A training row of exactly n_tokens (at least 200): 2 to 20 facts as prose, code constants or JSON
// records, one or two questions a fact, filler between them. kInvalid where the filler is shorter.
Result<TokenRow> recall_row(const Tokenizer& tokenizer, const Filler& filler, int n_tokens,
                            uint64_t seed);

struct NeedleOptions {
  int context_tokens = 512;  // of the prompt with the answer
  int n_facts = 1;           // 1: passkey; more: the others are distractors of the same form
  uint64_t seed = 0;
};

// A retrieval case of the held-out split: a prompt, and the digits that must follow it.
struct NeedleCase {
  std::vector<TokenId> prompt;  // context_tokens - answer.size() tokens
  std::vector<TokenId> answer;  // five digits, one token each
  std::string key, value;
  // Of the first token of the fact; at least 100 tokens before the answer.
  int64_t fact_position = 0;
};

// kInvalid where the facts do not fit into context_tokens, or the filler does not fill them.
Result<NeedleCase> needle_case(const Tokenizer& tokenizer, const Filler& filler,
                               const NeedleOptions& options);

}  // namespace fathom::train
