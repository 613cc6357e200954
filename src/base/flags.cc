#include "base/flags.h"

#include <cstdlib>

namespace fathom {

std::optional<std::string> secret_of_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace fathom
