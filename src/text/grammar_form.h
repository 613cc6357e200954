#pragma once

// A small written form of grammars, in the manner of EBNF:
//
//   root ::= greeting " " name ("!" | "." )?     # a comment
//   greeting ::= "Hello" | "Hi"
//   name ::= [A-Z] [a-z]{1,20}
//
// Rules are names of letters, digits, _ and -; `root` is the whole text. Literals in double quotes
// with \" \\ \n \r \t \xHH \uHHHH; classes in brackets as in a regular expression
// (grammar_regex.h); ( ) | * + ? {m} {m,} {m,n}. A rule goes on over line ends up to the next
// "name ::=". A rule that can begin with itself is refused by name: write `item list | item`.

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/grammar.h"

namespace fathom {

// `where` begins messages, which give the line.
Result<Grammar> form_grammar(std::string_view text, const std::string& where,
                             const GrammarFrame& frame = {});

}  // namespace fathom
