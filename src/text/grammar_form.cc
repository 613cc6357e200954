#include "text/grammar_form.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "text/grammar_builder.h"
#include "text/grammar_regex.h"
#include "text/quote.h"
#include "text/utf8.h"

namespace fathom {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr int kGroupsMax = 100;  // around one another

bool is_name_byte(char c) {
  return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' || c == '-';
}

class FormReader {
 public:
  FormReader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Result<Grammar> read(const GrammarFrame& frame) {
    for (skip(); at_ < text_.size(); skip()) FATHOM_RETURN_IF_ERROR(rule());
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

  bool sees(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!sees(what)) return false;
    at_ += what.size();
    return true;
  }
  Error wrong(const std::string& wanted) const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<int64_t>(at_), '\n');
    const std::string found =
        at_ == text_.size() ? "the end" : quote(text_.substr(at_, text_.find('\n', at_) - at_));
    return invalid(where_ + ": line " + std::to_string(line) + ": wanted " + wanted + ", found " +
                   found);
  }

  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name_byte(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  // A name with "::=" behind it begins the next rule.
  bool at_rule() {
    const size_t begin = at_;
    const bool named = !name().empty();
    skip();
    const bool found = named && sees("::=");
    at_ = begin;
    return found;
  }
  Known& known(std::string_view name) {
    const auto found = rules_.find(name);
    if (found != rules_.end()) return found->second;
    return rules_.emplace(name, Known{.id = builder_.declare(std::string(name))}).first->second;
  }

  Result<void> rule() {
    if (!at_rule()) return wrong("a rule: name ::= ...");
    const size_t begin = at_;
    Known& known_rule = known(name());
    if (known_rule.defined) {
      at_ = begin;
      return wrong("each rule once");
    }
    known_rule.defined = true;
    skip();
    take("::=");
    FATHOM_ASSIGN_OR_RETURN(const Expr body, alternatives());
    builder_.define(known_rule.id, body);
    return {};
  }

  Result<Expr> alternatives() {
    std::vector<Expr> parts;
    do {
      FATHOM_ASSIGN_OR_RETURN(const Expr part, terms());
      parts.push_back(part);
    } while (take("|"));
    return builder_.choice(std::move(parts));
  }

  Result<Expr> terms() {
    std::vector<Expr> parts;
    for (skip(); at_ < text_.size() && !sees("|") && !sees(")") && !at_rule(); skip()) {
      FATHOM_ASSIGN_OR_RETURN(const Expr part, quantified());
      parts.push_back(part);
    }
    return builder_.sequence(std::move(parts));
  }

  Result<Expr> quantified() {
    FATHOM_ASSIGN_OR_RETURN(const Expr part, atom());
    if (take("*")) return builder_.repeat(part, 0, -1);
    if (take("+")) return builder_.repeat(part, 1, -1);
    if (take("?")) return builder_.optional(part);
    if (!take("{")) return part;
    FATHOM_ASSIGN_OR_RETURN(const int64_t low, count());
    int64_t high = low;
    if (take(",")) {
      high = -1;
      if (!sees("}")) {
        FATHOM_ASSIGN_OR_RETURN(high, count());
      }
    }
    if (high >= 0 && high < low) return wrong("counts in order");
    if (!take("}")) return wrong("}");
    return builder_.repeat(part, low, high);
  }

  Result<int64_t> count() {
    const size_t begin = at_;
    int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = std::min(value * 10 + (text_[at_] - '0'), kGrammarCountMax + 1);
    }
    if (at_ > begin && value <= kGrammarCountMax) return value;
    at_ = begin;
    return wrong("a count of at most " + std::to_string(kGrammarCountMax));
  }

  Result<Expr> atom() {
    if (sees("\"")) return literal();
    if (sees("[")) return bracket();
    if (take(".")) return add_regex(builder_, ".", {}, where_);
    if (take("(")) {
      if (++n_groups_ > kGroupsMax) {
        return wrong("at most " + std::to_string(kGroupsMax) + " groups around one another");
      }
      FATHOM_ASSIGN_OR_RETURN(const Expr inner, alternatives());
      --n_groups_;
      if (!take(")")) return wrong(")");
      return inner;
    }
    const std::string_view called = name();
    if (called.empty()) return wrong("a literal, a class, a group or a rule");
    return builder_.call(known(called).id);
  }

  // The end of a bracketed or quoted part, its closing mark included; npos without one.
  size_t closing(char mark) const {
    for (size_t i = at_ + 1; i < text_.size() && text_[i] != '\n'; ++i) {
      if (text_[i] == mark) return i + 1;
      if (text_[i] == '\\') ++i;
    }
    return std::string_view::npos;
  }

  // Classes, and escapes in literals, mean what they mean in regular expressions.
  Result<Expr> bracket() {
    const size_t end = closing(']');
    if (end == std::string_view::npos) return wrong("a class that ends on its line");
    const std::string_view part = text_.substr(at_, end - at_);
    Result<Expr> set = add_regex(builder_, part, {}, where_);
    if (!set) return wrong("a class");
    at_ = end;
    return set;
  }

  Result<Expr> literal() {
    const size_t end = closing('"');
    if (end == std::string_view::npos) return wrong("a literal that ends on its line");
    std::vector<Expr> parts;
    for (size_t i = at_ + 1; i + 1 < end;) {
      if (text_[i] != '\\') {
        parts.push_back(builder_.bytes(text_.substr(i++, 1)));
        continue;
      }
      const size_t n = text_[i + 1] == 'x' ? 4 : text_[i + 1] == 'u' ? 6 : 2;
      const bool plain = std::string_view("\"\\nrtxu").find(text_[i + 1]) != std::string_view::npos;
      const Result<Expr> one = add_regex(builder_, text_.substr(i, n), {}, where_);
      if (!plain || i + n + 1 > end || !one) return wrong("a literal with known escapes");
      parts.push_back(*one);
      i += n;
    }
    at_ = end;
    return builder_.sequence(std::move(parts));
  }

  std::string_view text_;
  const std::string& where_;
  GrammarBuilder builder_;
  std::map<std::string, Known, std::less<>> rules_;
  size_t at_ = 0;
  int n_groups_ = 0;
};

}  // namespace

Result<Grammar> form_grammar(std::string_view text, const std::string& where,
                             const GrammarFrame& frame) {
  if (text.size() > kGrammarTextMax) {
    return exhausted(where + ": wanted at most " + std::to_string(kGrammarTextMax) +
                     " bytes, found " + std::to_string(text.size()));
  }
  return FormReader(text, where).read(frame);
}

}  // namespace fathom
