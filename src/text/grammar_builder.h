#pragma once

// GrammarBuilder: expressions and rules, and the Grammar that they make. What front ends speak.
//
// Limits are checked by finish(): kInvalid names the one that was passed. Thread rule: one
// thread.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/character_set.h"
#include "text/grammar.h"

namespace fathom {

inline constexpr int64_t kGrammarStatesMax = int64_t{1} << 17;
inline constexpr int64_t kGrammarEdgesMax = int64_t{1} << 19;
inline constexpr int64_t kGrammarCountMax = 16'384;          // of a repetition
inline constexpr int64_t kGrammarChainMax = 256;             // rules that begin with one another
inline constexpr size_t kGrammarPartsMax = size_t{1} << 19;  // expressions, the smallest counted
inline constexpr size_t kGrammarTextMax = size_t{1} << 16;   // bytes of a form's text

class GrammarBuilder {
 public:
  enum class Expr : uint32_t {};
  enum class RuleId : uint32_t {};

  // More was added than kGrammarPartsMax parts: the rest is dropped, and finish() will refuse.
  bool full() const { return full_; }

  Expr nothing();  // no text at all, not even the empty one
  Expr empty();    // the empty text
  Expr bytes(std::string_view text);
  // One of the texts; those that begin alike share their beginnings, however many there are.
  Expr one_of(std::vector<std::string> texts);
  Expr byte_range(uint8_t low, uint8_t high);
  Expr characters(const CharacterSet& set);  // one character, in UTF-8
  Expr sequence(std::vector<Expr> parts);
  Expr choice(std::vector<Expr> parts);
  Expr repeat(Expr part, int64_t at_least, int64_t at_most);  // at_most below 0: without end
  Expr optional(Expr part) { return repeat(part, 0, 1); }
  // State 0 begins; a text may end in each of `ends`.
  struct Move {
    uint32_t from = 0;
    uint32_t to = 0;
    Expr part = {};
  };
  Expr automaton(uint32_t n_states, std::vector<Move> moves, std::vector<uint32_t> ends);
  // Any bytes up to the first `text`, which is taken too, spelled or as the marker of that text.
  Expr until(const std::string& text);
  // Any characters, and the markers, among which `text` does not occur, spelled or by a marker.
  Expr without(std::string_view text, const std::vector<std::string>& markers);

  Expr marker(std::string text);  // that added token as a whole

  // `name` is for messages.
  RuleId declare(std::string name);
  void define(RuleId rule, Expr body);
  Expr call(RuleId rule);

  // The texts of `root` within the frame. kInvalid where no text fits it, or a rule can begin with
  // itself; `where` begins the message.
  Result<Grammar> finish(Expr root, const GrammarFrame& frame, const std::string& where);

 private:
  friend class GrammarLowering;
  enum class Kind : uint8_t {
    kNothing,
    kEmpty,
    kRange,
    kSequence,
    kChoice,
    kRepeat,
    kAutomaton,
    kMarker,
    kCall
  };
  struct Node {
    Kind kind = Kind::kEmpty;
    uint16_t low = 0;
    uint16_t high = 0;
    int64_t at_least = 0;
    int64_t at_most = 0;
    uint32_t index = 0;  // rule, text or automaton
    std::vector<Expr> parts;
    int64_t n_states = 0;  // that it takes, about; never too few
  };
  struct Named {
    std::string name;
    Expr body = {};
  };
  struct Automaton {
    uint32_t n_states = 0;
    std::vector<Move> moves;
    std::vector<uint32_t> ends;
  };

  Expr add(Node node);
  const Node& at(Expr expr) const { return nodes_[static_cast<size_t>(expr)]; }
  Expr utf8_range(char32_t low, char32_t high);
  Expr hoisted(Expr part);
  Expr branches(std::span<const std::string> texts, size_t n_shared);
  Expr calls_block();

  std::vector<Node> nodes_;
  bool full_ = false;
  std::vector<Named> rules_;
  std::vector<std::string> texts_;
  std::vector<Automaton> automata_;
};

}  // namespace fathom
