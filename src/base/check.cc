#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace fathom {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "fathom: internal error: %s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace fathom
