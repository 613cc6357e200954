#pragma once

// Where a verb reads what it works on: a file that a flag names, or standard input.

#include <cstdint>
#include <string>

#include "base/result.h"

namespace fathom {

// The whole of standard input. More than max_bytes: kExhausted.
Result<std::string> read_standard_input(uint64_t max_bytes);

// The whole of a file, of standard input ("-"), of a device or a pipe, which is read to its end; a
// pipe without a writer, or that says nothing, is kInvalid. More than max_bytes: kExhausted.
Result<std::string> read_text(const std::string& path, uint64_t max_bytes);

}  // namespace fathom
