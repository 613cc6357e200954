// Goal: the figures are those of this process. Method: what is done to it shows in them.
#include "serve/process_figures.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <vector>

#include "base/clock.h"

namespace fathom {
namespace {

TEST(ProcessFigures, FollowWhatIsDone) {
  const ProcessFigures before = process_figures();
  EXPECT_LT(before.start_s, 1e-6 * static_cast<double>(unix_microseconds()) + 1);
  EXPECT_GT(before.start_s, 1e-6 * static_cast<double>(unix_microseconds()) - 24 * 3600);
  EXPECT_GE(before.open_files, 3);
  EXPECT_GE(before.open_files_max, before.open_files);
  EXPECT_GE(before.virtual_bytes, before.resident_bytes);
  const std::ifstream one("/proc/self/stat");
  const std::ifstream other("/proc/self/stat");
  constexpr size_t kBytes = size_t{64} << 20;
  const std::vector<char> memory(kBytes, 'x');
  const double begun_s = steady_seconds();
  while (process_figures().cpu_s < before.cpu_s + 0.02 && steady_seconds() < begun_s + 60) {
  }
  const ProcessFigures after = process_figures();
  EXPECT_EQ(after.open_files, before.open_files + 2);
  EXPECT_GE(after.resident_bytes, before.resident_bytes + int64_t{60} * (1 << 20));
  EXPECT_GE(after.cpu_s, before.cpu_s + 0.02);
  EXPECT_EQ(after.start_s, before.start_s);
  EXPECT_EQ(memory[kBytes / 2], 'x');
}

}  // namespace
}  // namespace fathom
