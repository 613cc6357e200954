#pragma once

// Finds added tokens in a text: leftmost first, longest at equal start, anywhere, before any
// splitting. Source: spec/tokenizer.md section 2.
//
// Thread rule: const after construction.

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer_file.h"

namespace fathom {

class AddedTokenMatcher {
 public:
  struct Match {
    ByteRange range;
    TokenId id = kNoToken;
  };

  explicit AddedTokenMatcher(const std::vector<AddedToken>& tokens);

  // The first match that starts at or after `from` and ends at or before `end`.
  std::optional<Match> find(std::string_view text, size_t from, size_t end) const;

  // The id of the added token with exactly this text, or kNoToken.
  TokenId find_exact(std::string_view content) const;

 private:
  static constexpr int32_t kNoNode = -1;

  // A trie over bytes. Children of a node are its edges [first_edge, first_edge + n_edges).
  struct Node {
    TokenId id = kNoToken;
    uint32_t first_edge = 0;
    uint32_t n_edges = 0;
  };
  struct Edge {
    uint8_t byte = 0;
    int32_t node = kNoNode;
  };

  int32_t child(int32_t node, uint8_t byte) const;
  std::optional<Match> longest_at(std::string_view text, size_t begin, size_t end) const;

  std::vector<Node> nodes_;  // nodes_[0] is the root
  std::vector<Edge> edges_;
  std::array<int32_t, 256> first_{};  // the node after one byte, or kNoNode
};

}  // namespace fathom
