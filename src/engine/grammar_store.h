#pragma once

// GrammarCursor: where an answer stands in its grammar, and what may be drawn next. GrammarStore:
// the grammars of live requests and of the last ones that ended; equal ones share what was found
// out about them.
//
// Thread rule: the engine thread.

#include <map>
#include <memory>
#include <span>

#include "base/hash.h"
#include "text/token_matcher.h"

namespace fathom {

// A value; a fork of the answer copies it.
class GrammarCursor {
 public:
  // Whether begin() was called. Until then anything may be drawn, and the mask is empty.
  bool bound() const { return matcher_ != nullptr; }
  // The matcher outlives the cursor. kExhausted as TokenMatcher's.
  Result<void> begin(TokenMatcher& matcher, std::span<const int32_t> stop_ids);

  // `id` was drawn under the mask and is no stop id. Whether anything can follow; if so find_mask()
  // is next.
  Result<bool> accept(int32_t id);
  // kNotFound where no token of the vocabulary can follow and the text cannot end.
  Result<void> find_mask(std::span<const int32_t> stop_ids);
  std::span<const uint64_t> mask() const { return mask_; }

 private:
  TokenMatcher* matcher_ = nullptr;
  GrammarState state_;
  TokenMask mask_;
};

class GrammarStore {
 public:
  struct Entry {
    Entry(Grammar of, const TokenTrie& tokens) : grammar(std::move(of)), matcher(grammar, tokens) {}
    const Grammar grammar;
    TokenMatcher matcher;
    int64_t n_users = 0;
    uint64_t last_use = 0;
  };

  // `tokens` outlives the store; null: take() is not to be called. n_kept: entries without users.
  GrammarStore(const TokenTrie* tokens, size_t n_kept) : tokens_(tokens), n_kept_(n_kept) {}

  Entry* take(Grammar grammar);
  void give_back(Entry* entry);  // null: nothing
  size_t size() const { return entries_.size(); }

 private:
  const TokenTrie* tokens_;
  size_t n_kept_;
  std::map<Sha256Digest, std::unique_ptr<Entry>> entries_;
  uint64_t n_uses_ = 0;
};

}  // namespace fathom
