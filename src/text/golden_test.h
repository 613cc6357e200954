#pragma once

// For the tests of this room: the golden data of tests/golden and the released tokenizer.

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace fathom {

// A file below tests/golden; a name in .xz is unpacked. Ends the test program if it cannot be read.
std::string golden_file(const std::string& name);
boost::json::value golden_json(const std::string& name);
std::vector<boost::json::value> golden_json_lines(const std::string& name);

// Loaded once a process from tests/golden/tokenizer/tokenizer.json.xz.
const std::string& released_tokenizer_json();
const Tokenizer& released_tokenizer();

std::vector<TokenId> ids_of(const boost::json::value& list);
std::string string_of(const boost::json::value& text);

}  // namespace fathom
