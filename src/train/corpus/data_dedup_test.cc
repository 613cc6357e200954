#include "train/corpus/data_dedup.h"

#include <gtest/gtest.h>

#include "train/corpus/synth_text_rng.h"

namespace fathom::train {
namespace {

std::string random_text(uint64_t seed, int words) {
  SynthRng rng(seed);
  std::string text;
  for (int i = 0; i < words; ++i) {
    for (int64_t j = rng.between(2, 9); j > 0; --j) text += static_cast<char>('a' + rng.below(26));
    text += i % 10 == 9 ? '\n' : ' ';
  }
  return text;
}

TEST(NearDuplicates, SeesEditedCopiesAndNotNewText) {
  NearDuplicates seen;
  const std::string text = random_text(1, 3000);
  seen.add(text);
  EXPECT_EQ(seen.seen_share(text), 1.0);
  std::string edited = "// a new first line that moves everything\n" + text;
  for (size_t i = 2000; i < edited.size(); i += 2000) edited[i] = '#';
  EXPECT_GT(seen.seen_share(edited), 0.9);
  EXPECT_EQ(seen.seen_share(random_text(2, 3000)), 0.0);
  const double half = seen.seen_share(text.substr(0, text.size() / 2) + random_text(3, 1500));
  EXPECT_NEAR(half, 0.5, 0.1);
  EXPECT_EQ(seen.seen_share("short"), 0.0);
}

TEST(RepeatedLines, GoFromPagesThatShareThem) {
  std::vector<std::string> pages;
  for (int i = 0; i < 50; ++i) {
    pages.push_back("Home | Index\n\n\nBody number " + std::to_string(i) +
                    "\n  Copyright by all \n" + (i < 3 ? "rare line\n" : ""));
  }
  drop_repeated_lines(pages, 0.04, 6);
  EXPECT_EQ(pages[0], "Body number 0\nrare line\n");
  EXPECT_EQ(pages[9], "Body number 9\n");
}

TEST(RepeatedLines, StayInSmallSources) {
  std::vector<std::string> pages(5, "same\n");
  drop_repeated_lines(pages, 0.04, 6);
  EXPECT_EQ(pages[4], "same\n");
}

}  // namespace
}  // namespace fathom::train
