#pragma once

// tokenizer.json as values: everything that the file says and that fathom gives a meaning to, with
// every id and every part checked. What would change ids and is not supported (a normaliser,
// unknown patterns, prefix spaces, dropout, byte fallback ...) is refused by name, never ignored.
//
// The accepted form (spec/tokenizer.md section 1): a byte-level BPE model whose vocabulary holds
// all 256 bytes, and whose every other entry is an added token or the result of a merge; merges as
// "a b" or ["a", "b"], each part being a byte or the result of an earlier merge, so that there is
// no cycle; ids 0 .. n-1 without holes.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/token.h"

namespace fathom {

struct Merge {
  TokenId left = kNoToken;
  TokenId right = kNoToken;
  TokenId result = kNoToken;
};

struct AddedToken {
  TokenId id = kNoToken;
  std::string content;  // not empty
  bool special = false;
};

struct TokenizerFile {
  std::vector<std::string> token_bytes;     // by id, all ids of vocabulary and added tokens
  std::vector<Merge> merges;                // by rank: the smaller index merges first
  std::vector<AddedToken> added;            // ascending ids, distinct contents
  std::vector<std::string> split_patterns;  // isolating splits, in order
  bool ignore_merges = false;               // a piece that is a vocabulary entry is one token
};

// `name` (a path) starts every message.
Result<TokenizerFile> parse_tokenizer_file(std::string_view json, std::string_view name);

}  // namespace fathom
