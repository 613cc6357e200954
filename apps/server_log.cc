#include "apps/server_log.h"

#include <cstdio>
#include <ctime>

#include "base/clock.h"

namespace fathom {

void log_line(const std::string& line) {
  const int64_t now_us = unix_microseconds();
  const auto now_s = static_cast<std::time_t>(now_us / 1'000'000);
  std::tm utc{};
  ::gmtime_r(&now_s, &utc);
  char second[32];
  std::strftime(second, sizeof(second), "%Y-%m-%dT%H:%M:%S", &utc);
  std::fprintf(stderr, "%s.%03dZ %s\n", second, static_cast<int>(now_us / 1000 % 1000),
               line.c_str());
}

}  // namespace fathom
