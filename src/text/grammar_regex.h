#pragma once

// Regular expressions as grammars: the part of ECMA-262 (with the u flag) that describes a set of
// texts. Literals, `.`, classes, \d \D \w \W \s \S, \t \n \r \f \v \0, \xHH, \uHHHH, \u{H...}, \cX,
// escaped punctuation, groups (also named and (?:...)), |, * + ? {m} {m,} {m,n} (a lazy one is the
// same set), ^ at the start and $ at the end. Back references, look-around, \b, \p and flags are
// refused by name and position.

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/grammar_builder.h"

namespace fathom {

struct RegexOptions {
  // The expression may begin and end anywhere in the text where it has no ^ and $; otherwise it is
  // the whole text.
  bool search = false;
  // How a character is written; null: as itself, in UTF-8.
  std::function<GrammarBuilder::Expr(GrammarBuilder& builder, const CharacterSet& set)> spell;
};

// `where` begins messages. The pattern is well-formed UTF-8.
Result<GrammarBuilder::Expr> add_regex(GrammarBuilder& builder, std::string_view pattern,
                                       const RegexOptions& options, const std::string& where);

Result<Grammar> regex_grammar(std::string_view pattern, const std::string& where,
                              const GrammarFrame& frame = {});

}  // namespace fathom
