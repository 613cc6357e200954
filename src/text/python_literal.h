#pragma once

// String literals in Python source, as far as a checkpoint's encoding file needs them.

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

// The value of the top-level assignment `name = "..."` or `name: type = "..."` whose right side is
// one string: adjacent literals are joined, parentheses around them and comments between them are
// allowed, prefixes r, u and f (either case) are understood; f-strings are returned with their
// braces as they stand. Nothing if the name is not assigned at the start of a line. An error if it
// is assigned anything else, bytes included.
Result<std::optional<std::string>> find_python_string(std::string_view source,
                                                      std::string_view name);

}  // namespace fathom
