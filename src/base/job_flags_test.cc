// Goal: what is wrong with the words of a job is found and named. Method: rules of every kind.
#include "base/job_flags.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

const std::vector<FlagRule> kRules = {
    {.name = "out", .required = true},
    {.name = "text"},
    {.name = "steps", .kind = FlagKind::kCount, .low = 1, .high = 10},
    {.name = "limit", .kind = FlagKind::kNumber, .low = 1, .high = 1e9},
    {.name = "json", .kind = FlagKind::kSwitch}};

std::string complaint(const std::vector<std::string>& words) {
  const auto flags = JobFlags::read(words, kRules);
  return flags ? "" : flags.error().message;
}

TEST(JobFlags, GiveWhatTheWordsSayElseTheFallback) {
  const auto flags = JobFlags::read({"--json", "--out", "a b", "--limit", "2.5"}, kRules);
  ASSERT_TRUE(flags) << flags.error().message;
  EXPECT_TRUE(flags->has("json"));
  EXPECT_EQ(flags->text("out"), "a b");
  EXPECT_EQ(flags->text("text", "none"), "none");
  EXPECT_EQ(flags->number("limit", 7), 2.5);
  EXPECT_EQ(flags->count("steps", 4), 4);
  EXPECT_EQ(JobFlags::read({"--out", "x", "--steps", "10"}, kRules)->count("steps", 4), 10);
}

TEST(JobFlags, NameWhatIsWrong) {
  EXPECT_EQ(complaint({}), "--out: wanted a value, found none");
  EXPECT_EQ(complaint({"--out"}), "--out: wanted a value, found none");
  EXPECT_EQ(complaint({"--out", ""}), "--out: wanted a value, found nothing");
  EXPECT_EQ(complaint({"--out", "a", "--out", "b"}), "--out: wanted it once, found it twice");
  EXPECT_EQ(complaint({"--out", "a", "b"}), "wanted a flag of the job, found b");
  EXPECT_EQ(complaint({"out", "a"}), "wanted a flag of the job, found out");
  EXPECT_EQ(complaint({"--frob"}), "wanted a flag of the job, found --frob");
  for (const char* steps : {"0", "11", "1.5", "x", " 1", "0x2", "99999999999999999999"}) {
    EXPECT_EQ(complaint({"--out", "a", "--steps", steps}),
              std::string("--steps: wanted a whole number from 1 to 10, found ") + steps);
  }
  for (const char* limit : {"0", "nan", "inf", "1e10", "2s"}) {
    EXPECT_EQ(complaint({"--out", "a", "--limit", limit}),
              std::string("--limit: wanted a number from 1 to 1e+09, found ") + limit);
  }
}

TEST(JobFlags, HelpIsGivenWhateverElseIsWrong) {
  for (const char* word : {"--help", "-h"}) {
    const auto flags = JobFlags::read({"--frob", word}, kRules);
    ASSERT_TRUE(flags);
    EXPECT_TRUE(flags->has("help"));
  }
}

TEST(JobFlags, AUsageLineSaysWhereHelpIs) {
  EXPECT_EQ(usage_line("train run", "--out: wanted a value, found none"),
            "fathom: usage: train run: --out: wanted a value, found none; see fathom train run "
            "--help\n");
}

}  // namespace
}  // namespace fathom
