#include "serve/open_files.h"

#include <sys/resource.h>

#include <algorithm>

namespace fathom {

int64_t connections_allowed(int64_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const auto needed = static_cast<rlim_t>(wanted + kFilesBeside);
  if (limit.rlim_cur < needed) {
    limit.rlim_cur = std::min(needed, limit.rlim_max);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= needed) return wanted;
  return std::max<int64_t>(1, static_cast<int64_t>(limit.rlim_cur) - kFilesBeside);
}

}  // namespace fathom
