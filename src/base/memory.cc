#include "base/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace fathom {

uint64_t available_memory_bytes() {
  uint64_t available = std::numeric_limits<uint64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  std::string unit;
  while (meminfo >> key >> kib >> unit) {
    if (key != "MemAvailable:") continue;
    available = kib * 1024;
    break;
  }
  for (const int resource : {RLIMIT_AS, RLIMIT_DATA}) {
    struct rlimit limit = {};
    if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY) {
      available = std::min<uint64_t>(available, limit.rlim_cur);
    }
  }
  return available;
}

}  // namespace fathom
