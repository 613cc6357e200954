#pragma once

// Wrong usage in the words of docs/cli.md: what was wanted, what was found.

#include <string>
#include <vector>

#include "apps/verb.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace fathom {

// What CLI11 has against `words`, the command line without the program's name. Options are called
// as they were typed.
std::string usage_message(const CLI::ParseError& error, CLI::App& program,
                          const std::vector<std::string>& words);

// CLI11's "--mode: fast not in {exact,deploy}" as wanted and found; another text as it is.
std::string in_plain_words(const std::string& complaint);

// Makes an empty value of an option wrong usage, except where the value is a text: "" must not
// stand for an option that was not given.
void refuse_empty_values(CLI::App& verb);

// The first word that stands in a list twice; empty: none does.
std::string repeated_word(const std::vector<std::string>& words);

// The first of these options that the command line named; nullptr: it named none.
const CLI::Option* first_typed(const TypedOptions& typed,
                               const std::vector<const CLI::Option*>& options);

// "wanted one of run, chat, ..., found WORD".
std::string unknown_verb(const CLI::App& program, const std::string& word);

}  // namespace fathom
