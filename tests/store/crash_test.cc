// Goal: kill -9 costs time only. Method: 200 trials with a fixed seed; tests/long/store_crash.sh
// goes on to 10,000.
#include "crash.h"

#include "base/folder_testing.h"

namespace fathom {
namespace {

class StoreCrashTest : public FolderTest {};

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

}  // namespace
}  // namespace fathom
