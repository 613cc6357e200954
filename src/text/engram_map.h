#pragma once

// The Engram token map: token ids to the smaller set of canonical ids whose n-grams are hashed.
// Source: spec/engram.md section 2.

#include <vector>

#include "text/tokenizer.h"

namespace fathom {

struct EngramMap {
  std::vector<int32_t> compressed;  // [vocab_size], by token id
  int32_t n_keys = 0;               // compressed ids are 0 .. n_keys - 1
};

EngramMap build_engram_map(const Tokenizer& tokenizer);

}  // namespace fathom
