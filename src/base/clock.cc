#include "base/clock.h"

#include <chrono>

namespace fathom {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace fathom
