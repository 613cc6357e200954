#include "base/flags.h"

#include <cstdlib>

namespace fathom {

std::optional<std::string> secret_of_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

}  // namespace fathom
