#pragma once

// Token ids to text, one at a time: gives out what is decided and holds back at most 3 bytes that
// begin a character. All text given out, with flush(), is Tokenizer::decode of all ids.
//
// Thread rule: one object, one thread. The tokenizer outlives the object.

#include <string>

#include "text/tokenizer.h"

namespace fathom {

class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, SpecialTokens special = SpecialTokens::kKeep)
      : tokenizer_(tokenizer), special_(special) {}

  // The text that became certain with `id`: well-formed UTF-8, perhaps empty. An id outside the
  // vocabulary is an error and changes nothing.
  Result<std::string> push(TokenId id);

  // What is still held back, as U+FFFD; the decoder is then as new.
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  const SpecialTokens special_;
  std::string held_;  // an incomplete sequence, at most 3 bytes
};

}  // namespace fathom
