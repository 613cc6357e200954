#pragma once

// Wrong usage in the words of docs/cli.md: what was wanted, what was found.

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace fathom {

// What CLI11 has against `words`, the command line without the program's name. Options are called
// as they were typed.
std::string usage_message(const CLI::ParseError& error, CLI::App& program,
                          const std::vector<std::string>& words);

// "wanted one of run, chat, ..., found WORD".
std::string unknown_verb(const CLI::App& program, const std::string& word);

}  // namespace fathom
