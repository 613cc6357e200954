// Goal: a fault that repeats is told and does not fill a log. Method: hand-written times.
#include "base/sparing_log.h"

#include <gtest/gtest.h>

#include <vector>

namespace fathom {
namespace {

TEST(SparingLog, WritesTenLinesAMinuteAndCountsTheOthers) {
  std::vector<std::string> lines;
  SparingLog log([&](const std::string& line) { lines.push_back(line); });
  for (int i = 0; i < 25; ++i) log.say("line " + std::to_string(i), 100 + i);
  EXPECT_EQ(lines.size(), 10U);
  EXPECT_EQ(lines.back(), "line 9");
  log.say("later", 160);
  EXPECT_EQ(lines.back(), "later (15 lines before left out)");
  log.say("last", 161);
  EXPECT_EQ(lines.back(), "last");
  for (int i = 0; i < 20; ++i) log.say("more", 162);
  EXPECT_EQ(lines.size(), 20U);
}

}  // namespace
}  // namespace fathom
