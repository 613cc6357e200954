#pragma once

// TokenTrie: the byte strings of a vocabulary as one tree, laid out in the order of a walk.
//
// Tokens without bytes and added tokens are not in it; added tokens are found by their text.
// Thread rule: const after construction.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/token.h"

namespace fathom {

class Tokenizer;

class TokenTrie {
 public:
  struct Node {
    uint32_t end = 0;  // the first node behind all that begin with this one
    TokenId token = kNoToken;
    uint16_t depth = 0;  // bytes up to here, this one too; the root's is 0
    uint8_t byte = 0;
  };

  explicit TokenTrie(const Tokenizer& tokenizer);
  // Of tokens by id; `added` are those that only their text finds.
  TokenTrie(const std::vector<std::string>& tokens, const std::vector<bool>& added);

  int32_t n_tokens() const { return static_cast<int32_t>(tokens_.size()); }
  // Node 0 is the root.
  const std::vector<Node>& nodes() const { return nodes_; }
  uint16_t depth_max() const { return depth_max_; }
  // Tokens with the same bytes as a smaller id, which alone is in the tree: pairs of the two.
  const std::vector<std::pair<TokenId, TokenId>>& repeats() const { return repeats_; }

  std::string_view bytes(TokenId id) const { return tokens_[static_cast<size_t>(id)]; }
  bool is_added(TokenId id) const { return added_[static_cast<size_t>(id)]; }
  // The added token of that text, or kNoToken.
  TokenId added_token(std::string_view text) const;

 private:
  void build();

  std::vector<std::string> tokens_;
  std::vector<bool> added_;
  std::map<std::string, TokenId, std::less<>> by_text_;
  std::vector<Node> nodes_;
  std::vector<std::pair<TokenId, TokenId>> repeats_;
  uint16_t depth_max_ = 0;
};

}  // namespace fathom
