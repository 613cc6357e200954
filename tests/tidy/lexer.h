#pragma once

// Just enough of C++ to see functions: comments and literals removed, tokens, and one pass that
// finds every function with its length, parameters and depth of control flow.

#include <string>
#include <string_view>
#include <vector>

namespace fathom::tidy {

// The same text with every comment and the inside of every literal blanked; lines stay in place.
// Where keep_comments, only literals are blanked.
std::string blank_literals(const std::string& text, bool keep_comments);

struct Token {
  std::string_view text;  // into the blanked text, which must outlive it
  int line = 0;
};

// Tokens of blanked text: identifiers, numbers, single punctuation characters (and `::`, `->`).
// Preprocessor lines are left out.
std::vector<Token> tokenize(const std::string& blanked);

struct Function {
  std::string name;  // last part: `load` of `Weights::load`; TEST bodies have their macro's name
  int line = 0;      // where the signature begins
  int lines = 0;     // signature and body; 0 for a declaration
  int parameters = 0;
  int nesting = 0;  // deepest if, for, while, do or switch inside another
  bool kernel = false;
};

// All functions that text defines or declares, methods included, lambdas as part of their owner.
std::vector<Function> find_functions(const std::string& text);

}  // namespace fathom::tidy
