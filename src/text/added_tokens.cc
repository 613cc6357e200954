#include "text/added_tokens.h"

#include <algorithm>
#include <span>

namespace fathom {

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& tokens) {
  std::vector<const AddedToken*> sorted;
  for (const AddedToken& token : tokens) sorted.push_back(&token);
  std::ranges::sort(sorted, {}, [](const AddedToken* t) -> std::string_view { return t->content; });

  // Each node covers the sorted tokens [begin, end) that share its first `depth` bytes. Nodes are
  // laid out breadth first, so that the edges of one node lie together.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, sorted.size(), 0}};
  nodes_.emplace_back();
  for (size_t at = 0; at < ranges.size(); ++at) {
    auto [begin, end, depth] = ranges[at];
    if (begin < end && sorted[begin]->content.size() == depth) nodes_[at].id = sorted[begin++]->id;
    nodes_[at].first_edge = static_cast<uint32_t>(edges_.size());
    while (begin < end) {
      const char byte = sorted[begin]->content[depth];
      size_t next = begin;
      while (next < end && sorted[next]->content[depth] == byte) ++next;
      edges_.push_back({static_cast<uint8_t>(byte), static_cast<int32_t>(nodes_.size())});
      nodes_.emplace_back();
      ranges.push_back({begin, next, depth + 1});
      begin = next;
    }
    nodes_[at].n_edges = static_cast<uint32_t>(edges_.size()) - nodes_[at].first_edge;
  }
  for (int byte = 0; byte < 256; ++byte) first_[byte] = child(0, static_cast<uint8_t>(byte));
}

int32_t AddedTokenMatcher::child(int32_t node, uint8_t byte) const {
  const auto edges = std::span(edges_).subspan(nodes_[node].first_edge, nodes_[node].n_edges);
  const auto edge = std::ranges::lower_bound(edges, byte, {}, &Edge::byte);
  return edge != edges.end() && edge->byte == byte ? edge->node : kNoNode;
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::longest_at(std::string_view text,
                                                                      size_t begin,
                                                                      size_t end) const {
  std::optional<Match> longest;
  int32_t node = first_[static_cast<uint8_t>(text[begin])];
  for (size_t pos = begin + 1; node != kNoNode; ++pos) {
    if (nodes_[node].id != kNoToken) longest = Match{{begin, pos}, nodes_[node].id};
    if (pos == end) break;
    node = child(node, static_cast<uint8_t>(text[pos]));
  }
  return longest;
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::find(std::string_view text, size_t from,
                                                                size_t end) const {
  for (size_t begin = from; begin < end; ++begin) {
    if (first_[static_cast<uint8_t>(text[begin])] == kNoNode) continue;
    if (auto match = longest_at(text, begin, end)) return match;
  }
  return std::nullopt;
}

TokenId AddedTokenMatcher::find_exact(std::string_view content) const {
  if (content.empty()) return kNoToken;
  const auto match = longest_at(content, 0, content.size());
  return match && match->range.end == content.size() ? match->id : kNoToken;
}

}  // namespace fathom
