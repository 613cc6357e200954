#pragma once

// TokenMatcher: which tokens may come next in a text of a grammar. One for each grammar; it keeps
// what it found out, within bounds. GrammarState: where one text stands.
//
// A token may come exactly where its bytes (a marker's token: its symbol) lead on; then some text
// can be ended after it. Added tokens that are no markers never may.
//
// Thread rule: one matcher, its states and the masks it gave: one thread.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/grammar_machine.h"
#include "text/token_trie.h"

namespace fathom {

// One bit a token, token 0 in the lowest bit of the first word.
using TokenMask = std::vector<uint64_t>;

inline bool mask_has(std::span<const uint64_t> mask, TokenId token) {
  const auto bit = static_cast<uint32_t>(token);
  return bit / 64 < mask.size() && (mask[bit / 64] >> (bit % 64) & 1) != 0;
}
inline void mask_set(std::span<uint64_t> mask, TokenId token) {
  const auto bit = static_cast<uint32_t>(token);
  mask[bit / 64] |= uint64_t{1} << (bit % 64);
}

// A value, a function of the tokens that were accepted.
struct GrammarState {
  bool can_end = false;  // what was accepted is a whole text
  bool can_go_on = false;
  // Private to the matcher: the position, and its number while the matcher's epoch lasts.
  std::vector<uint32_t> written;
  uint64_t epoch = 0;
  uint32_t position = 0;
};

struct MatcherLimits {
  size_t n_positions = GrammarMachine::kPositionsMax / 2;  // kept between two calls
  size_t n_items = size_t{2} << 20;                        // their members, likewise
  int64_t work = GrammarMachine::kWorkMax;                 // of one call
  size_t mask_bytes = size_t{8} << 20;                     // of masks that are kept
};

class TokenMatcher {
 public:
  // Both outlive the matcher.
  TokenMatcher(const Grammar& grammar, const TokenTrie& tokens, const MatcherLimits& limits = {});

  Result<GrammarState> start();
  // Whether the token may come; if not the state stays. kExhausted past a bound of the machine.
  Result<bool> accept(GrammarState& state, TokenId token);
  // All that may come. Valid until the next call. kExhausted as above.
  Result<const TokenMask*> mask(const GrammarState& state);

  // Masks that were worked out, and that were there. For measurements.
  int64_t n_computed() const { return n_computed_; }
  int64_t n_found() const { return n_found_; }
  int64_t work() const { return machine_.work(); }  // of the last call

 private:
  using Position = GrammarMachine::Position;
  // The tree walked from states above an unknown stack.
  struct Inside {
    TokenMask mask;               // tokens that end inside
    std::vector<uint32_t> exits;  // nodes where the rule may end
  };

  Position resolve(const GrammarState& state);
  GrammarState at(Position position);
  Error overflow();
  void trim();
  const Inside& inside(Position above);
  void walk(uint32_t top, Position from, TokenMask& mask, std::vector<uint32_t>* exits);
  void add_exits(const Inside& inside, GrammarMachine::Entry entry, TokenMask& mask);
  TokenMask compute(Position position);
  size_t mask_bytes() const { return n_words_ * sizeof(uint64_t); }

  GrammarMachine machine_;
  const TokenTrie& tokens_;
  MatcherLimits limits_;
  size_t n_words_;
  std::vector<uint16_t> class_of_byte_;
  std::vector<TokenId> marker_tokens_;
  std::vector<Position> path_;  // of the walk, by depth
  std::unordered_map<Position, Inside> inside_;
  std::unordered_map<Position, TokenMask> masks_;
  uint64_t epoch_ = 1;
  int64_t n_computed_ = 0;
  int64_t n_found_ = 0;
};

}  // namespace fathom
