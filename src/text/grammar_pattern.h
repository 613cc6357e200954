#pragma once

// PatternText: the text of a written form (an expression, a grammar) and the place in it that is
// read. What both forms write alike is read here: alternatives, groups, counts. Private to
// grammar_regex and grammar_form.
//
// Thread rule: one text, one thread.

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/grammar_builder.h"

namespace fathom {

class PatternText {
 public:
  using Expr = GrammarBuilder::Expr;
  using Read = std::function<Result<Expr>()>;
  enum class Places { kBytes, kLines };  // how messages count

  // All outlive it; `where` begins messages.
  PatternText(GrammarBuilder& builder, std::string_view text, const std::string& where,
              Places places)
      : builder_(builder), text_(text), where_(where), places_(places) {}

  bool done() const { return at_ == text_.size(); }
  bool sees(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!sees(what)) return false;
    at_ += what.size();
    return true;
  }
  char peek() const { return done() ? '\0' : text_[at_]; }
  char next() { return text_[at_++]; }  // not at the end
  std::string_view text() const { return text_; }
  size_t at() const { return at_; }
  void move_to(size_t at) { at_ = at; }

  // What stands at this place is not what was wanted.
  Error wrong(const std::string& wanted) const;
  Error wrong(const std::string& wanted, const std::string& found) const;

  // One or more of what `terms` reads, with | between.
  Result<Expr> alternatives(const Read& terms);
  // What `inner` reads, up to the closing bracket; the opening one was taken.
  Result<Expr> group(const Read& inner);
  bool in_group() const { return n_groups_ > 0; }
  // The part, or a repetition of it where * + ? {m} {m,} {m,n} follows.
  Result<Expr> repeated(Expr part);

 private:
  Result<int64_t> count();

  GrammarBuilder& builder_;
  std::string_view text_;
  const std::string& where_;
  Places places_;
  size_t at_ = 0;
  int n_groups_ = 0;
};

}  // namespace fathom
