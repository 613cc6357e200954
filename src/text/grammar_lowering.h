#pragma once

// GrammarLowering: from the expressions of a GrammarBuilder to a Grammar. Private to the builder.

#include <string>
#include <vector>

#include "text/grammar_builder.h"

namespace fathom {

class GrammarLowering {
 public:
  GrammarLowering(const GrammarBuilder& from, const std::string& where)
      : from_(from), where_(where) {}

  Result<Grammar> lower(uint32_t root);

 private:
  using Expr = GrammarBuilder::Expr;
  using Kind = GrammarBuilder::Kind;
  struct Draft {
    std::vector<Grammar::Edge> edges;
    std::vector<Grammar::Call> calls;
    std::vector<uint32_t> empties;  // reached without a symbol
    bool accepts = false;
    bool alive = false;  // a text can be ended from here
  };
  struct Ends {
    uint32_t start = 0;
    uint32_t end = 0;
    bool nullable = false;
    bool alive = false;
    bool busy = false;  // it has a text that is not empty
  };

  // grammar_lowering.cc
  Result<void> check_sizes() const;
  uint32_t new_state();
  void place(Expr expr, uint32_t begin, uint32_t end);
  void place_repeat(const GrammarBuilder::Node& node, uint32_t begin, uint32_t end);
  uint16_t marker_symbol(const std::string& text);
  void place_automaton(const GrammarBuilder::Automaton& automaton, uint32_t begin, uint32_t end);
  void find_nullable();
  Result<void> remove_empties();
  void find_alive();
  void drop_dead();
  void drop_idle_calls();

  // grammar_finish.cc
  Result<Grammar> finish(uint32_t root);
  void number(Grammar& grammar, uint32_t root);
  Result<void> rank(Grammar& grammar) const;
  Result<void> check_chains(const Grammar& grammar) const;
  static void classify(Grammar& grammar);
  static void digest(Grammar& grammar);

  const GrammarBuilder& from_;
  std::string where_;
  std::vector<Draft> states_;
  std::vector<Ends> rules_;
  std::vector<std::string> markers_;
  std::vector<uint32_t> kept_rules_;  // of the grammar, by their number in the builder
};

}  // namespace fathom
