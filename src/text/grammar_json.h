#pragma once

// The parts of JSON as expressions of a builder. Thread rule: one builder, one thread.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/character_set.h"
#include "text/grammar_builder.h"
#include "text/json_text.h"

namespace fathom {

class JsonParts {
 public:
  using Expr = GrammarBuilder::Expr;

  // Characters of `escaped`, below U+10000, never stand as they are, but by their numbers.
  explicit JsonParts(GrammarBuilder& builder, const CharacterSet& escaped = {});

  // What `make` gives, as one rule of that name however often it is asked for.
  Expr shared(const std::string& name, const std::function<Expr()>& make);

  Expr space();                     // what may stand between two parts, or nothing
  Expr comma();                     // with the space behind it
  Expr key(std::string_view name);  // with colon and the space behind it
  Expr literal(const Json& value);

  // A string of any characters, in any spelling; at_most below 0: of any length.
  Expr string(int64_t at_least, int64_t at_most);
  // A key that is none of `names`, without escapes, colon and space behind it.
  Expr other_key(const std::vector<std::string>& names);
  // A text of JSON with those characters escaped.
  std::string spelled(std::string_view json) const;
  // A character of the set inside a string, in its shortest spelling.
  Expr character(const CharacterSet& set);
  Expr quoted(Expr content);

  Expr any_value(int depth);
  Expr any_but_string(int depth);
  Expr any_object(int depth);
  // In brackets, with space at their inner sides.
  Expr braces(Expr members);
  Expr brackets(Expr items);

 private:
  Expr string_character();
  Expr listed(Expr item);  // none, or some with commas between

  GrammarBuilder& b_;
  CharacterSet escaped_;  // those that JSON asks for are among them
  std::map<std::string, GrammarBuilder::RuleId> shared_;
};

}  // namespace fathom
