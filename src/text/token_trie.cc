#include "text/token_trie.h"

#include <algorithm>

#include "base/check.h"
#include "text/tokenizer.h"

namespace fathom {
namespace {

constexpr size_t kLongest = UINT16_MAX;  // bytes of a token; longer ones are left out

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer) {
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    tokens_.emplace_back(tokenizer.token_bytes(id));
    added_.push_back(tokenizer.is_added(id));
  }
  build();
}

TokenTrie::TokenTrie(const std::vector<std::string>& tokens, const std::vector<bool>& added)
    : tokens_(tokens), added_(added) {
  FATHOM_CHECK(added_.size() == tokens_.size());
  build();
}

void TokenTrie::build() {
  std::vector<TokenId> order;
  for (TokenId id = 0; id < n_tokens(); ++id) {
    if (is_added(id)) by_text_.emplace(bytes(id), id);
    if (!is_added(id) && !bytes(id).empty() && bytes(id).size() <= kLongest) order.push_back(id);
  }
  std::ranges::sort(order, [&](TokenId a, TokenId b) {
    return bytes(a) != bytes(b) ? bytes(a) < bytes(b) : a < b;
  });
  nodes_.emplace_back();
  std::vector<uint32_t> path = {0};  // nodes of the bytes of the last token
  std::string_view last;
  for (const TokenId id : order) {
    const std::string_view text = bytes(id);
    if (text == last) {
      repeats_.emplace_back(nodes_[path.back()].token, id);
      continue;
    }
    const auto differ = std::ranges::mismatch(text, last);
    const auto n_shared = static_cast<size_t>(differ.in1 - text.begin());
    for (; path.size() > n_shared + 1; path.pop_back()) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    }
    for (size_t i = n_shared; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(
          {.depth = static_cast<uint16_t>(i + 1), .byte = static_cast<uint8_t>(text[i])});
    }
    nodes_.back().token = id;
    depth_max_ = std::max(depth_max_, nodes_.back().depth);
    last = text;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
}

TokenId TokenTrie::added_token(std::string_view text) const {
  const auto found = by_text_.find(text);
  return found == by_text_.end() ? kNoToken : found->second;
}

}  // namespace fathom
