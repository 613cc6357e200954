#pragma once

// Grammar: a set of texts, compiled. Each rule is an automaton over symbols, whose edges take a
// range of symbols or call a rule. Symbols 0 to 255 are bytes, symbol 256 + m is the m-th marker:
// an added token as a whole, which its spelled bytes never are. Source: docs/design/grammar.md.
//
// Invariants: from every state a text can be ended; no call chain returns to its rule without
// taking a symbol (no left recursion), and a call at a rule's start leads to a rule of higher rank;
// a rule that may be empty is also passed over by the edges beside its calls. State 0 accepts and
// goes nowhere.
//
// Thread rule: a value, const after it was compiled.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"

namespace fathom {

inline constexpr uint32_t kFirstMarker = 256;

struct Grammar {
  struct Edge {
    uint16_t low = 0;
    uint16_t high = 0;  // belongs to it
    uint32_t target = 0;
  };
  struct Call {
    uint32_t rule = 0;
    uint32_t target = 0;  // where to go on afterwards
  };
  struct State {
    uint32_t first_edge = 0;
    uint32_t first_call = 0;
    bool accepts = false;
  };
  struct Rule {
    uint32_t start = 0;
    uint32_t rank = 0;  // each rule has its own
  };

  std::vector<State> states;  // and one behind the last
  std::vector<Edge> edges;
  std::vector<Call> calls;
  std::vector<Rule> rules;
  std::vector<uint32_t> rule_of_rank;
  uint32_t root = 0;
  std::vector<std::string> markers;

  // Symbols that no edge tells apart have one class.
  std::vector<uint16_t> symbol_class;
  std::vector<uint16_t> class_symbol;  // one symbol of each class

  Sha256Digest digest = {};  // of all that: equal for equal grammars

  size_t n_states() const { return states.size() - 1; }
  std::span<const Edge> edges_of(uint32_t state) const {
    return std::span(edges).subspan(states[state].first_edge,
                                    states[state + 1].first_edge - states[state].first_edge);
  }
  std::span<const Call> calls_of(uint32_t state) const {
    return std::span(calls).subspan(states[state].first_call,
                                    states[state + 1].first_call - states[state].first_call);
  }
};

// What stands around the text that a form describes.
struct GrammarFrame {
  // The text begins inside reasoning: anything up to the first "</think>", then at most two line
  // feeds, then the form.
  bool thinking = false;
  // Instead of the form a block of tool calls may stand: two line feeds or none, its opening tag,
  // then anything.
  bool calls = false;
};

}  // namespace fathom
