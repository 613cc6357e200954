#include "text/grammar_form.h"

#include <map>
#include <utility>

#include "text/grammar_builder.h"
#include "text/grammar_pattern.h"
#include "text/grammar_regex.h"
#include "text/quote.h"

namespace fathom {
namespace {

using Expr = GrammarBuilder::Expr;

bool is_name_byte(char c) {
  return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' || c == '-';
}

class FormReader {
 public:
  FormReader(std::string_view text, const std::string& where)
      : where_(where), text_(builder_, text, where, PatternText::Places::kLines) {}

  Result<Grammar> read(const GrammarFrame& frame) {
    for (skip(); !text_.done(); skip()) FATHOM_RETURN_IF_ERROR(rule());
    for (const auto& [name, known] : rules_) {
      if (!known.defined)
        return invalid(where_ + ": wanted a rule " + quote(name) + ", found none");
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return invalid(where_ + ": wanted a rule \"root\", found none");
    return builder_.finish(builder_.call(root->second.id), frame, where_);
  }

 private:
  struct Known {
    GrammarBuilder::RuleId id = {};
    bool defined = false;
  };

  void skip() {
    while (!text_.done()) {
      if (text_.sees("#")) {
        while (!text_.done() && !text_.sees("\n")) text_.next();
      } else if (std::string_view(" \t\r\n").find(text_.peek()) != std::string_view::npos) {
        text_.next();
      } else {
        return;
      }
    }
  }

  std::string_view name() {
    const size_t begin = text_.at();
    while (is_name_byte(text_.peek())) text_.next();
    return text_.text().substr(begin, text_.at() - begin);
  }
  // A name with "::=" behind it begins the next rule.
  bool at_rule() {
    const size_t begin = text_.at();
    const bool named = !name().empty();
    skip();
    const bool found = named && text_.sees("::=");
    text_.move_to(begin);
    return found;
  }
  Known& known(std::string_view name) {
    const auto found = rules_.find(name);
    if (found != rules_.end()) return found->second;
    return rules_.emplace(name, Known{.id = builder_.declare(std::string(name))}).first->second;
  }

  Result<void> rule() {
    if (!at_rule()) return text_.wrong("a rule: name ::= ...");
    const size_t begin = text_.at();
    Known& known_rule = known(name());
    if (known_rule.defined) {
      text_.move_to(begin);
      return text_.wrong("each rule once");
    }
    known_rule.defined = true;
    skip();
    text_.take("::=");
    FATHOM_ASSIGN_OR_RETURN(const Expr body, alternatives());
    builder_.define(known_rule.id, body);
    return {};
  }

  Result<Expr> alternatives() {
    return text_.alternatives([this] { return terms(); });
  }

  Result<Expr> terms() {
    std::vector<Expr> parts;
    for (skip(); !text_.done() && !text_.sees("|") && !text_.sees(")") && !at_rule(); skip()) {
      FATHOM_ASSIGN_OR_RETURN(const Expr part, atom());
      FATHOM_ASSIGN_OR_RETURN(const Expr whole, text_.repeated(part));
      parts.push_back(whole);
    }
    return builder_.sequence(std::move(parts));
  }

  Result<Expr> atom() {
    if (text_.sees("\"")) return literal();
    if (text_.sees("[")) return bracket();
    if (text_.take(".")) return add_regex(builder_, ".", {}, where_);
    if (text_.take("(")) return text_.group([this] { return alternatives(); });
    const std::string_view called = name();
    if (called.empty()) return text_.wrong("a literal, a class, a group or a rule");
    return builder_.call(known(called).id);
  }

  // A bracketed or quoted part, its marks included; empty where it does not end on its line.
  std::string_view marked(char mark) const {
    const std::string_view rest = text_.text().substr(text_.at());
    for (size_t i = 1; i < rest.size() && rest[i] != '\n'; ++i) {
      if (rest[i] == mark) return rest.substr(0, i + 1);
      if (rest[i] == '\\') ++i;
    }
    return {};
  }

  // Classes, and escapes in literals, mean what they mean in regular expressions.
  Result<Expr> bracket() {
    const std::string_view part = marked(']');
    if (part.empty()) return text_.wrong("a class that ends on its line");
    Result<Expr> set = add_regex(builder_, part, {}, where_);
    if (!set) return text_.wrong("a class");
    text_.take(part);
    return set;
  }

  Result<Expr> literal() {
    const std::string_view whole = marked('"');
    if (whole.empty()) return text_.wrong("a literal that ends on its line");
    std::vector<Expr> parts;
    for (size_t i = 1; i + 1 < whole.size();) {
      if (whole[i] != '\\') {
        parts.push_back(builder_.bytes(whole.substr(i++, 1)));
        continue;
      }
      const size_t n = whole[i + 1] == 'x' ? 4 : whole[i + 1] == 'u' ? 6 : 2;
      const bool plain = std::string_view("\"\\nrtxu").find(whole[i + 1]) != std::string_view::npos;
      const Result<Expr> one = add_regex(builder_, whole.substr(i, n), {}, where_);
      if (!plain || i + n + 1 > whole.size() || !one) {
        return text_.wrong("a literal with known escapes");
      }
      parts.push_back(*one);
      i += n;
    }
    text_.take(whole);
    return builder_.sequence(std::move(parts));
  }

  const std::string& where_;
  GrammarBuilder builder_;
  PatternText text_;
  std::map<std::string, Known, std::less<>> rules_;
};

}  // namespace

Result<Grammar> form_grammar(std::string_view text, const std::string& where,
                             const GrammarFrame& frame) {
  if (text.size() > kGrammarTextMax) {
    return invalid(where + ": wanted at most " + std::to_string(kGrammarTextMax) +
                   " bytes, found " + std::to_string(text.size()));
  }
  return FormReader(text, where).read(frame);
}

}  // namespace fathom
