#include "text/grammar_regex.h"

#include <utility>
#include <vector>

#include "text/grammar_character.h"
#include "text/grammar_pattern.h"
#include "text/utf8.h"

namespace fathom {
namespace {

using Expr = GrammarBuilder::Expr;

CharacterSet any_but_line_ends() {
  return CharacterSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).complement();
}

class RegexReader {
 public:
  RegexReader(GrammarBuilder& builder, std::string_view pattern, const RegexOptions& options,
              const std::string& where)
      : builder_(builder),
        text_(builder, pattern, where, PatternText::Places::kBytes),
        options_(options) {}

  Result<Expr> read() {
    FATHOM_ASSIGN_OR_RETURN(const Expr whole, alternatives());
    if (!text_.done()) return text_.wrong("an expression", "a closing bracket");
    return whole;
  }

 private:
  Expr spelled(const CharacterSet& set) {
    return options_.spell ? options_.spell(builder_, set) : builder_.characters(set);
  }
  Expr anything() { return builder_.repeat(spelled(CharacterSet().complement()), 0, -1); }

  Result<Expr> alternatives() {
    return text_.alternatives([this] { return terms(); });
  }
  bool at_end() const { return text_.done() || text_.sees("|") || text_.sees(")"); }

  // One alternative. Where it is not inside a group, ^ and $ may stand around it.
  Result<Expr> terms() {
    const bool outer = !text_.in_group();
    const bool from_start = outer && text_.take("^");
    bool to_end = false;
    std::vector<Expr> parts;
    if (outer && options_.search && !from_start) parts.push_back(anything());
    while (!at_end()) {
      if (outer && text_.take("$")) {
        to_end = true;
        if (!at_end()) return text_.wrong("$ at the end");
        break;
      }
      FATHOM_ASSIGN_OR_RETURN(const Expr part, quantified());
      parts.push_back(part);
    }
    if (outer && options_.search && !to_end) parts.push_back(anything());
    return builder_.sequence(std::move(parts));
  }

  Result<Expr> quantified() {
    FATHOM_ASSIGN_OR_RETURN(const Expr part, atom());
    const size_t begin = text_.at();
    FATHOM_ASSIGN_OR_RETURN(const Expr whole, text_.repeated(part));
    if (text_.at() == begin) return whole;
    text_.take("?");
    if (at_quantifier()) return text_.wrong("one quantifier");
    return whole;
  }
  bool at_quantifier() const {
    return text_.sees("*") || text_.sees("+") || text_.sees("?") || text_.sees("{");
  }

  Result<Expr> atom() {
    if (text_.sees("(")) return group();
    if (text_.sees("[")) {
      FATHOM_ASSIGN_OR_RETURN(const CharacterSet set, read_class(text_));
      return spelled(set);
    }
    if (text_.take(".")) return spelled(any_but_line_ends());
    if (at_quantifier()) return text_.wrong("something to repeat");
    if (text_.sees("^") || text_.sees("$")) {
      return text_.wrong("^ at the start and $ at the end alone");
    }
    if (text_.sees("]") || text_.sees("}")) return text_.wrong("a bracket that was opened");
    FATHOM_ASSIGN_OR_RETURN(const CharacterSet set, read_character(text_));
    return spelled(set);
  }

  Result<Expr> group() {
    for (const std::string_view around : {"(?=", "(?!", "(?<=", "(?<!"}) {
      if (text_.sees(around)) return text_.wrong("no look-around");
    }
    const size_t begin = text_.at();
    text_.take("(");
    if (text_.take("?")) {
      const bool named = text_.take("<");
      while (named && !text_.done() && text_.peek() != '>') text_.next();
      if (!text_.take(named ? ">" : ":")) {
        text_.move_to(begin);
        return text_.wrong("a group without flags");
      }
    }
    return text_.group([this] { return alternatives(); });
  }

  GrammarBuilder& builder_;
  PatternText text_;
  const RegexOptions& options_;
};

}  // namespace

Result<Expr> add_regex(GrammarBuilder& builder, std::string_view pattern,
                       const RegexOptions& options, const std::string& where) {
  const size_t valid = utf8_valid_prefix(pattern);
  if (valid != pattern.size()) {
    return invalid(where + ": byte " + std::to_string(valid) +
                   ": wanted UTF-8, found ill-formed bytes");
  }
  if (pattern.size() > kGrammarTextMax) {
    return invalid(where + ": wanted at most " + std::to_string(kGrammarTextMax) +
                   " bytes, found " + std::to_string(pattern.size()));
  }
  return RegexReader(builder, pattern, options, where).read();
}

Result<Grammar> regex_grammar(std::string_view pattern, const std::string& where,
                              const GrammarFrame& frame) {
  GrammarBuilder builder;
  FATHOM_ASSIGN_OR_RETURN(const Expr whole, add_regex(builder, pattern, {}, where));
  return builder.finish(whole, frame, where);
}

}  // namespace fathom
