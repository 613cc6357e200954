// Goal: kill -9 costs time only. Method: 200 trials of writers and of rewriters with a fixed seed;
// tests/long/store_crash.sh goes on to 10,000 and 2,000. What was in use before the kill is what
// stays after it.
#include "crash.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/folder_testing.h"
#include "cache/store/store_testing.h"
#include "rewrite_crash.h"

namespace fathom {
namespace {

class StoreCrashTest : public StoreTest {
 protected:
  // A process that puts a chain, reads it so many times, and is killed. No folder has it before.
  void put_read_and_be_killed(const StoreOptions& options, int n_reads) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto store = open(options);
      put_chain(*store, 1000, 0, kBlocks);
      for (int i = 0; i < n_reads; ++i) hits(*store, 1000, kBlocks);
      store->flush();
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }

  static constexpr int64_t kBlocks = 60;
};

TEST_F(StoreCrashTest, WhatWasInUseBeforeAKillStaysThroughAScanAfterIt) {
  StoreOptions small = options();
  small.max_bytes = 24 * small.segment_bytes;
  for (const int n_reads : {0, 2}) {
    put_read_and_be_killed(small, n_reads);
    {
      const auto store = open(small);
      EXPECT_FALSE(store->report().index_rebuilt);
      for (uint64_t chain = 0; chain < 20; ++chain) put_chain(*store, chain, 0, 60);
      const int64_t n_hits = hits(*store, 1000, kBlocks);
      EXPECT_EQ(n_hits, n_reads == 0 ? 0 : kBlocks);
    }
    std::filesystem::remove_all(folder());
  }
}

TEST_F(StoreCrashTest, TwoHundredKillsBringNoWrongByteAndLoseNothingPublished) {
  const CrashCounts counts = run_crash_trials(folder(), 200, 20261201);
  EXPECT_EQ(counts.first_fault, "");
  EXPECT_EQ(counts.wrong, 0);
  EXPECT_EQ(counts.refused, 0);
  EXPECT_EQ(counts.found, counts.published);
  // That the trials were any.
  EXPECT_GT(counts.killed_at_work, 40);
  EXPECT_GT(counts.published, 1000);
  EXPECT_GT(counts.read, 2000);
  EXPECT_GT(counts.rebuilt, 20);
}

TEST_F(StoreCrashTest, TwoHundredKillsOfARewriteLoseNothingAndLeaveNothingOfWhatIsErased) {
  const RewriteCrashCounts counts = run_rewrite_trials(folder(), 200, 20261202);
  EXPECT_EQ(counts.first_fault, "");
  EXPECT_EQ(counts.wrong, 0);
  EXPECT_EQ(counts.found, counts.kept);
  EXPECT_EQ(counts.problems, 0);
  EXPECT_EQ(counts.left, 0);
  // That the trials were any.
  EXPECT_GT(counts.killed_at_work, 60);
  EXPECT_GT(counts.half_done, 40);
  EXPECT_GT(counts.erased, 2000);
}

}  // namespace
}  // namespace fathom
