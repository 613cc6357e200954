// The hand-written pass for the released patterns against the same patterns in PCRE2, on all code
// points of planes 0 and 1 and a sample of the rest in several surroundings and on random texts;
// splitting around ill-formed bytes.

#include "text/released_split.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <random>

#include "text/golden_test.h"
#include "text/pretokenizer.h"
#include "text/utf8.h"

namespace fathom {
namespace {

using Ends = std::vector<size_t>;

class ReleasedSplitTest : public testing::Test {
 protected:
  ReleasedSplitTest() : regex_(*RegexSplit::compile(ReleasedSplit::patterns())) {}

  Ends by_hand(std::string_view text) const {
    Ends ends;
    hand_.split(text, 0, &ends);
    return ends;
  }
  Ends by_regex(std::string_view text) const {
    Ends ends;
    EXPECT_TRUE(regex_.split(text, 0, &scratch_, &ends));
    return ends;
  }

  ReleasedSplit hand_;
  RegexSplit regex_;
  mutable RegexSplit::Scratch scratch_;  // one for all texts, as in a call of encode()
};

// Goal: the fast pass is chosen for the file it was written for.
TEST_F(ReleasedSplitTest, PatternsAreThoseOfTheReleasedFile) {
  const auto file = boost::json::parse(released_tokenizer_json());
  const auto& steps = file.at("pre_tokenizer").at("pretokenizers").as_array();
  ASSERT_EQ(steps.size(), 4u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(string_of(steps[i].at("pattern").at("Regex")), ReleasedSplit::patterns()[i]);
  }
}

TEST_F(ReleasedSplitTest, CodePointsAreSplitAlikeInEverySurrounding) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    if (c >= 0x20000 && c % 61 != 0) continue;  // ideographs and empty planes: a sample
    std::string x;
    utf8_append(&x, c);
    // Alone and beside a letter, a sign, a digit, a space, a newline and an ideograph.
    const std::string text = x + "a" + x + "!" + x + "1" + x + " " + x + "\n" + x + "\xE4\xB8\xAD" +
                             x + x + "  " + x + " a" + x;
    ASSERT_EQ(by_hand(text), by_regex(text)) << std::hex << static_cast<uint32_t>(c);
  }
}

TEST_F(ReleasedSplitTest, RandomTextsAreSplitAlike) {
  const auto seed = std::random_device()();
  std::mt19937 random(seed);
  const std::string_view bits[] = {" ",
                                   " ",
                                   "\n",
                                   "\r",
                                   "\t",
                                   "a",
                                   "Z",
                                   "word",
                                   "1",
                                   "42",
                                   "!",
                                   "#",
                                   "~",
                                   "\xC3\xA9",
                                   "\xCC\x81",
                                   "\xC2\xA0",
                                   "\xE3\x80\x80",
                                   "\xE4\xB8\xAD",
                                   "$",
                                   "\v",
                                   "_",
                                   "-",
                                   "\xE3\x82\xA2",
                                   "\xE3\x83\xBB",
                                   "\xEF\xBC\x8C",
                                   "\xF0\x9F\x98\x80",
                                   "\xD9\xA3",
                                   "\xCD\xB8",
                                   "\xE2\x80\xA8",
                                   "\x01",
                                   "'",
                                   "\xE3\x82\x99",
                                   "\xE2\x85\xA7"};
  for (int round = 0; round < 30'000; ++round) {
    std::string text;
    for (size_t i = 0, n = random() % 24; i < n; ++i) text += bits[random() % std::size(bits)];
    ASSERT_EQ(by_hand(text), by_regex(text)) << "seed " << seed << " " << text;
  }
}

TEST_F(ReleasedSplitTest, GoldenTextsAreSplitAlike) {
  for (const auto& c : golden_json_lines("tokenizer/cases.jsonl")) {
    const std::string text = string_of(c.at("text"));
    ASSERT_EQ(by_hand(text), by_regex(text)) << text;
  }
}

TEST(Pretokenizer, IllFormedRunsStandAlone) {
  const auto pretokenizer = Pretokenizer::create(ReleasedSplit::patterns());
  ASSERT_TRUE(pretokenizer);
  Ends ends;
  Pretokenizer::Scratch scratch;
  ASSERT_TRUE(pretokenizer->split("ab\xFF\xC3 cd\xE4\xB8", &scratch, &ends));
  EXPECT_EQ(ends, (Ends{2, 4, 7, 9}));
}

// A stack for the engine that is mapped for every run of well-formed bytes costs a page fault each.
TEST(Pretokenizer, ManyIllFormedRunsShareOneStack) {
  constexpr long kRuns = 20000;
  const auto pretokenizer = Pretokenizer::create({"[a-z]+|[0-9]+"});
  ASSERT_TRUE(pretokenizer);
  std::string text;
  for (long i = 0; i < kRuns; ++i) text += "ab1\xFF";
  const auto faults = [] {
    rusage usage = {};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  Ends ends;
  ends.reserve(4 * kRuns);
  Pretokenizer::Scratch scratch;
  const long before = faults();
  ASSERT_TRUE(pretokenizer->split(text, &scratch, &ends));
  EXPECT_LT(faults() - before, kRuns / 2);
  ASSERT_EQ(ends.size(), static_cast<size_t>(3 * kRuns));
  EXPECT_EQ((Ends{ends[0], ends[1], ends[2], ends[3]}), (Ends{2, 3, 4, 6}));
}

TEST(RegexSplit, EmptyMatchesAndGapsKeepEveryByte) {
  const auto split = [](std::vector<std::string> patterns, std::string_view text) {
    const auto regex = RegexSplit::compile(patterns);
    Ends ends;
    RegexSplit::Scratch scratch;
    EXPECT_TRUE(regex->split(text, 0, &scratch, &ends));
    return ends;
  };
  EXPECT_EQ(split({"x*"}, "axxb"), (Ends{1, 3, 4}));
  EXPECT_EQ(split({"b"}, "aba"), (Ends{1, 2, 3}));
  EXPECT_EQ(split({"b", "a+"}, "aabca"), (Ends{2, 3, 4, 5}));
  EXPECT_EQ(split({"(?=b)"},
                  "\xC3\xA9"
                  "b\xC3\xA9"),
            (Ends{2, 5}));
  EXPECT_EQ(split({}, "abc"), (Ends{3}));
  EXPECT_EQ(split({"a"}, ""), (Ends{}));
}

TEST(RegexSplit, TooMuchBacktrackingIsAnErrorAndNotAnotherSplit) {
  const auto regex = RegexSplit::compile({"b", "(?:a|aa|aaa)+(?:a|aa)+(?:a|aaa)+(?<!a)"});
  ASSERT_TRUE(regex);
  Ends ends = {7};
  RegexSplit::Scratch scratch;
  const auto done = regex->split("bb" + std::string(40, 'a'), 0, &scratch, &ends);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(done.error().message.starts_with("split pattern 1: byte 2 of the text: wanted a "))
      << done.error().message;
  EXPECT_EQ(ends, (Ends{7}));
  ASSERT_TRUE(regex->split("ab", 0, &scratch, &ends));  // the next text has all its steps
  EXPECT_EQ(ends, (Ends{7, 1, 2}));
}

// A million bytes of stack hold fewer steps back than this match takes; the heap holds them.
TEST(RegexSplit, ALongMatchIsFoundWhereCompiledCodeHasNoStackLeft) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "ab";
  const auto regex = RegexSplit::compile({"(?:a|b)+"});
  ASSERT_TRUE(regex);
  Ends ends;
  RegexSplit::Scratch scratch;
  const auto done = regex->split(text + "c", 0, &scratch, &ends);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(ends, (Ends{200000, 200001}));
}

TEST(RegexSplit, ClassesAreUnicode16InsideAndOutsideBrackets) {
  const auto matches = [](const char* pattern, const char* text) {
    Ends ends;
    RegexSplit::Scratch scratch;
    EXPECT_TRUE(RegexSplit::compile({pattern})->split(text, 0, &scratch, &ends));
    return ends;
  };
  // U+1C89 is a letter since Unicode 16, so x stays with it.
  const char text[] = "x\xE1\xB2\x89.";
  for (const char* pattern :
       {"\\p{L}+", "[\\p{L}]+", "[^\\P{L}]+", "\\p{^P}+", "[^\\p{P}\\s]+", "[^\\p{^L}]+"}) {
    EXPECT_EQ(matches(pattern, text), (Ends{4, 5})) << pattern;
  }
  EXPECT_EQ(matches("\\S+",
                    "a\xC2\x85"
                    "b"),
            (Ends{1, 3, 4}));
  EXPECT_EQ(matches("[\\S]+",
                    "a\xC2\x85"
                    "b"),
            (Ends{1, 3, 4}));
  EXPECT_EQ(matches("[]a]+", "b]ab"), (Ends{1, 3, 4}));
}

}  // namespace
}  // namespace fathom
