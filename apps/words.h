#pragma once

// The command line as typed, put so that CLI11 cannot read it as something else.

#include <string>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fathom {

// The words behind a verb with each option's value as a word of its own: --name=VALUE and -x=VALUE
// as the option and VALUE, which may be empty. CLI11 takes --name= as an option without a value and
// goes on to the next word, and the = of -x=VALUE as a part of the value. A value behind a switch
// and an empty element of a list are kInvalid. The words of a verb that passes them on are as they
// were.
Result<std::vector<std::string>> separate_values(const CLI::App& verb,
                                                 const std::vector<std::string>& words);

// What is wrong with the value of an option that takes a list; empty: nothing, or it takes none.
std::string list_fault(const CLI::Option& option, const std::string& value);

}  // namespace fathom
