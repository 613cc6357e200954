#pragma once

// Where a verb reads what it works on: a file that a flag names, or standard input.

#include <cstdint>
#include <string>

#include "base/result.h"

namespace fathom {

// The whole of a file, or of standard input where `file` is empty. More than max_bytes: kExhausted.
Result<std::string> read_input(const std::string& file, uint64_t max_bytes);

}  // namespace fathom
