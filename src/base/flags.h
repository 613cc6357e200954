#pragma once

// What the environment may set: secrets, which do not belong on a command line that everybody sees.

#include <optional>
#include <string>

namespace fathom {

// Nothing where the variable is absent. Empty where it is set and empty: that is no secret, and the
// caller refuses it.
std::optional<std::string> secret_of_environment(const char* name);

}  // namespace fathom
