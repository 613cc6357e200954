#include "serve/open_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace fathom {
namespace {

// In a process of its own, whose limits are those given.
int connections_with(rlim_t soft, rlim_t hard, int64_t wanted, rlim_t soft_after) {
  rlimit limit = {.rlim_cur = soft, .rlim_max = hard};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return -1;
  const int64_t allowed = connections_allowed(wanted);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur == soft_after ? static_cast<int>(allowed) : -2;
}

void expect(rlim_t soft, rlim_t hard, rlim_t soft_after, int64_t allowed) {
  EXPECT_EXIT(::_exit(connections_with(soft, hard, 150, soft_after) == allowed ? 0 : 1),
              testing::ExitedWithCode(0), "");
}

TEST(OpenFiles, TheSoftLimitIsRaisedAsFarAsNeeded) { expect(100, 300, 214, 150); }
TEST(OpenFiles, TheHardLimitBoundsTheConnections) { expect(100, 200, 200, 136); }
TEST(OpenFiles, ALimitThatIsHighEnoughStays) { expect(300, 300, 300, 150); }

}  // namespace
}  // namespace fathom
