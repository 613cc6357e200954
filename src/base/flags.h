#pragma once

// What the environment may set: secrets, which do not belong on a command line that everybody sees.

#include <optional>
#include <string>

namespace fathom {

// Nothing where the variable is absent or empty.
std::optional<std::string> secret_of_environment(const char* name);

}  // namespace fathom
