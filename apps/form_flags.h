#pragma once

// Flags that bind an answer to a form.

#include <optional>
#include <string>

#include "base/result.h"
#include "text/grammar.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fathom {

class FormFlags {
 public:
  void add_to(CLI::App& app);
  // Nothing without a flag. Errors name the flag.
  Result<std::optional<Grammar>> grammar(const GrammarFrame& frame) const;

 private:
  std::string schema_file_;
  std::string regex_;
  std::string grammar_file_;
  const CLI::Option* regex_option_ = nullptr;
};

}  // namespace fathom
