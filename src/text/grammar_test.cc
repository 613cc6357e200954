#include "text/grammar_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "text/grammar_builder.h"
#include "text/grammar_form.h"
#include "text/grammar_number.h"
#include "text/grammar_regex.h"
#include "text/utf8.h"

namespace fathom {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

bool regex_takes(const std::string& pattern, const std::string& text) {
  const auto grammar = regex_grammar(pattern, "r");
  EXPECT_TRUE(grammar) << grammar.error().message;
  return grammar && takes(*grammar, text);
}

TEST(Regex, TakesWhatEcmaScriptTakes) {
  const std::vector<std::string> patterns = {
      "abc",           "a|bc|",       "(a|b)*c",      "[a-c]+x?",     "a{3}",         "a{2,}b",
      "a{1,3}?b",      "(?:ab){0,2}", "[^a]b",        "\\d+\\.\\d*",  "\\w\\W\\s",    "(?:a*)*b",
      "(a|ab)(c|bcd)", "^a+$",        "[\\d-]x",      "a.c",          "\\x61\\u0062", "[\\]a]+",
      "((((a))))",     "(a?){4}b",    "[a\\-c]{2,4}", "\\(\\)\\{\\}", "x*y*z*",       "(x+x+)+y"};
  std::mt19937 random(1);
  const std::string letters = "abcxyz.-]01 (){}_";
  for (const std::string& pattern : patterns) {
    const auto grammar = regex_grammar(pattern, "r");
    ASSERT_TRUE(grammar) << pattern << " " << grammar.error().message;
    const std::regex reference(pattern, std::regex::ECMAScript);
    int n_taken = 0;
    for (int i = 0; i < 1500; ++i) {
      std::string text;
      for (auto n = random() % 7; n > 0; --n)
        text += letters[random() % (1 + random() % letters.size())];
      const bool wanted = std::regex_match(text, reference);
      EXPECT_EQ(takes(*grammar, text), wanted) << pattern << " on " << text;
      n_taken += wanted ? 1 : 0;
    }
    RecordProperty(pattern.substr(0, 1), n_taken);
  }
}

TEST(Regex, CharactersAreCodePoints) {
  EXPECT_TRUE(regex_takes("[é-ü]", "ö"));
  EXPECT_FALSE(regex_takes("[é-ü]", "þ"));
  EXPECT_TRUE(regex_takes(".", "\U0001F600"));
  EXPECT_FALSE(regex_takes(".", "\xC3"));
  EXPECT_FALSE(regex_takes(".", "\xED\xA0\x80"));  // half of a surrogate pair
  EXPECT_TRUE(regex_takes("\\u{1F600}", "\U0001F600"));
  EXPECT_TRUE(regex_takes("\\uD83D\\uDE00", "\U0001F600"));
  EXPECT_TRUE(regex_takes("\\S", "\u4E2D"));
  EXPECT_FALSE(regex_takes("\\S", "\u00A0"));
}

// Each boundary of an encoding's length or first byte, and its neighbours, in and out of ranges.
TEST(Regex, RangesOfCharactersAreExact) {
  std::vector<char32_t> edges;
  for (const char32_t edge : {0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF,
                              0x10000, 0x3FFFF, 0x40000, 0x10FFFF}) {
    edges.insert(edges.end(), {edge - 1, edge});
    if (edge < 0x10FFFF) edges.push_back(edge + 1);
  }
  std::erase_if(edges, [](char32_t c) { return c >= 0xD800 && c <= 0xDFFF; });
  for (const char32_t low : edges) {
    for (const char32_t high : edges) {
      if (high < low) continue;
      GrammarBuilder builder;
      const CharacterSet set =
          CharacterSet(std::vector<CharacterSet::Range>{{low, high}}).complement().complement();
      const auto grammar = builder.finish(builder.characters(set), {}, "set");
      ASSERT_TRUE(grammar);
      for (const char32_t c : edges) {
        std::string text;
        utf8_append(&text, c);
        ASSERT_EQ(takes(*grammar, text), low <= c && c <= high)
            << uint32_t{low} << " " << uint32_t{high} << " " << uint32_t{c};
      }
    }
  }
}

TEST(Regex, WhatIsNotRegularIsRefusedWithItsPlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"(a)\\1", "r: byte 3: wanted no back reference"},
      {"a(?=b)", "r: byte 1: wanted no look-around"},
      {"(?<!b)a", "r: byte 0: wanted no look-around"},
      {"\\bword", "r: byte 0: wanted no back reference, \\b"},
      {"\\p{L}", "r: byte 0: wanted no back reference"},
      {"(?i)a", "r: byte 0: wanted a group without flags"},
      {"a**", "r: byte 2: wanted one quantifier"},
      {"*a", "r: byte 0: wanted something to repeat"},
      {"(a", "r: byte 2: wanted )"},
      {"a)", "r: byte 1: "},
      {"[a", "r: byte 2: wanted ]"},
      {"[z-a]", "r: byte 4: wanted a range"},
      {"a{3,1}", "r: byte 5: wanted counts in order"},
      {"a{99999}", "r: byte 2: wanted a count of at most 16384"},
      {"a$b", "r: byte 2: wanted $ at the end"},
      {"(^a)", "r: byte 1: wanted ^ at the start"},
      {"\xFF", "r: byte 0: wanted UTF-8"},
      {"\\uD800", "r: byte 6: wanted an escape of a character"},
      {"[]", "r: wanted a form that some text has"},
      {"a{16000}b{16000}c{16000}d{16000}e{16000}f{16000}g{16000}h{16000}i{16000}",
       "r: wanted a form of at most"}};
  for (const auto& [pattern, message] : cases) {
    const auto grammar = regex_grammar(pattern, "r");
    ASSERT_FALSE(grammar) << pattern;
    EXPECT_THAT(grammar.error().message, StartsWith(message)) << pattern;
  }
  EXPECT_THAT(regex_grammar(std::string(60'000, '.'), "r").error().message,
              StartsWith("r: wanted a form of at most"));
  EXPECT_THAT(regex_grammar(std::string(70'000, 'a'), "r").error().message,
              StartsWith("r: wanted at most 65536 bytes"));
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "(";
  EXPECT_THAT(regex_grammar(deep, "r").error().message, HasSubstr("groups around one another"));
}

TEST(Form, RulesLiteralsClassesAndCounts) {
  const std::string text = R"(
    root ::= greeting " " name ("!" | ".")?   # the whole
    greeting ::= "Hello"
               | "Hi"
    name ::= [A-Z] [a-z]{1,3} "\x21"* "\"" )";
  const auto grammar = form_grammar(text, "g");
  ASSERT_TRUE(grammar) << grammar.error().message;
  EXPECT_TRUE(takes(*grammar, "Hello Bob\""));
  EXPECT_TRUE(takes(*grammar, "Hi Bob!!\"."));
  EXPECT_FALSE(takes(*grammar, "Hi bob\""));
  EXPECT_FALSE(takes(*grammar, "Hi Bobby\""));
  EXPECT_FALSE(takes(*grammar, "Hi Bob"));
}

TEST(Form, NestedAndAmbiguousRulesAreTakenExactly) {
  const auto nested = form_grammar("root ::= \"(\" root \")\" root | \"\"", "g");
  ASSERT_TRUE(nested) << nested.error().message;
  // Each choice of endings can end both rules: 2^n ways to read n letters.
  const auto forked = form_grammar("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"", "g");
  ASSERT_TRUE(forked);
  const auto even = form_grammar("root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"\"", "g");
  ASSERT_TRUE(even);
  for (int bits = 0; bits < 1 << 12; ++bits) {
    const int n = bits % 12;
    std::string brackets;
    std::string letters;
    int depth = 0;
    bool balanced = true;
    for (int i = 0; i < n; ++i) {
      const bool up = ((bits * 2654435761U) >> (i + 4) & 1) != 0;
      brackets += up ? '(' : ')';
      letters += up ? 'a' : 'b';
      depth += up ? 1 : -1;
      balanced = balanced && depth >= 0;
    }
    EXPECT_EQ(takes(*nested, brackets), balanced && depth == 0) << brackets;
    const std::string mirrored(letters.rbegin(), letters.rend());
    EXPECT_EQ(takes(*even, letters), letters == mirrored && n % 2 == 0) << letters;
    const std::string half = letters.substr(0, static_cast<size_t>(n) / 2);
    const bool paired = n % 2 == 0 && half == std::string(half.size(), 'a') &&
                        letters.substr(half.size()) == std::string(half.size(), 'b');
    EXPECT_EQ(takes(*forked, letters), paired) << letters;
  }
  std::string many(400, 'a');
  EXPECT_EQ(taken(*forked, many), Taken::kBegun);
  for (int i = 0; i < 400; ++i) many += i % 3 == 0 ? 'b' : 'c';
  EXPECT_TRUE(takes(*forked, many));
}

// A rule that ends with itself needs no stack: positions repeat, however long the text is.
TEST(Form, RulesThatEndWithThemselvesDoNotPileUp) {
  const auto grammar = form_grammar("root ::= [a-z] \",\" root | [a-z]", "g");
  ASSERT_TRUE(grammar);
  GrammarMachine machine(*grammar);
  GrammarMachine::Position at = machine.start();
  for (int i = 0; i < 10'000; ++i) {
    at = machine.next(at, grammar->symbol_class[static_cast<uint8_t>(i % 2 == 0 ? 'x' : ',')]);
  }
  EXPECT_TRUE(machine.open(at));
  EXPECT_LT(machine.n_positions(), 10U);
}

// Where nothing can follow, the position says so, whatever rules stand there.
TEST(Form, RulesOfTheEmptyTextAloneLeadNowhere) {
  for (const char* text :
       {"root ::= ", "root ::= \"a\" none none\nnone ::= more?\nmore ::= \"\""}) {
    const auto grammar = form_grammar(text, "g");
    ASSERT_TRUE(grammar) << grammar.error().message;
    GrammarMachine machine(*grammar);
    GrammarMachine::Position at = machine.start();
    if (!machine.complete(at)) at = machine.next(at, grammar->symbol_class['a']);
    EXPECT_TRUE(machine.complete(at)) << text;
    EXPECT_FALSE(machine.open(at)) << text;
  }
}

TEST(Form, WhatIsWrongIsRefusedWithItsLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "g: wanted a rule \"root\", found none"},
      {"root ::= item", "g: wanted a rule \"item\", found none"},
      {"root ::= root \"a\" | \"a\"",
       "g: wanted rules that do not begin with themselves, found \"root\""},
      {"root ::= a\na ::= b?  root | \"y\"\nb ::= \"x\"",
       "g: wanted rules that do not begin with themselves"},
      {"root ::= \"a\" root", "g: wanted a form that some text has, found one that none has"},
      {"root ::= \"a\nb\"", "g: line 1: wanted a literal that ends on its line"},
      {"root ::= \"a\"\nroot ::= \"b\"", "g: line 2: wanted each rule once"},
      {"root ::= (\"a\"", "g: line 1: wanted )"},
      {"root ::= \"a\" )", "g: line 1: wanted a rule: name ::= ..."},
      {"root ::= [a", "g: line 1: wanted a class that ends on its line"},
      {"root ::= \"\\q\"", "g: line 1: wanted a literal with known escapes"},
      {"root = \"a\"", "g: line 1: wanted a rule"}};
  for (const auto& [text, message] : cases) {
    const auto grammar = form_grammar(text, "g");
    ASSERT_FALSE(grammar) << text;
    EXPECT_THAT(grammar.error().message, StartsWith(message)) << text;
  }
}

TEST(Numbers, IntegersBetweenBoundsAreExact) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 300; ++i) {
    const auto draw = [&] { return static_cast<int64_t>(random() % 3000) - 1500; };
    const int64_t low = draw();
    const int64_t high = i % 7 == 0 ? low : draw();
    GrammarBuilder builder;
    const auto grammar = builder.finish(add_integers(builder, low, high), {}, "n");
    ASSERT_EQ(grammar.has_value(), low <= high);
    if (!grammar) continue;
    for (int64_t value = -1600; value <= 1600; value += 1 + static_cast<int64_t>(random() % 3)) {
      ASSERT_EQ(takes(*grammar, std::to_string(value)), low <= value && value <= high)
          << low << " " << high << " " << value;
    }
    EXPECT_FALSE(takes(*grammar, "00"));
    EXPECT_FALSE(takes(*grammar, "-0"));
  }
}

TEST(Numbers, TheEndsOfIntegers) {
  GrammarBuilder builder;
  const auto all = builder.finish(add_integers(builder, INT64_MIN, INT64_MAX), {}, "n");
  ASSERT_TRUE(all);
  EXPECT_TRUE(takes(*all, "9223372036854775807"));
  EXPECT_FALSE(takes(*all, "9223372036854775808"));
  EXPECT_TRUE(takes(*all, "-9223372036854775808"));
  EXPECT_FALSE(takes(*all, "-9223372036854775809"));
}

// Bounds in thousandths, numbers with up to four places: compared as integers.
TEST(Numbers, DecimalsBetweenBoundsAreExact) {
  std::mt19937 random(4);
  const auto bound_of = [&](int64_t thousandths, bool exclusive) {
    const int64_t size = std::abs(thousandths);
    std::string fraction = std::to_string(1000 + size % 1000).substr(1);
    while (fraction.ends_with('0')) fraction.pop_back();
    return DecimalBound{.negative = thousandths < 0,
                        .whole = size / 1000,
                        .fraction = fraction,
                        .exclusive = exclusive};
  };
  for (int i = 0; i < 400; ++i) {
    const int64_t scale = i % 3 == 0 ? 1 : i % 3 == 1 ? 100 : 1000;
    const auto draw = [&] { return (static_cast<int64_t>(random() % 41) - 20) * scale; };
    const int64_t low = draw();
    const int64_t high = draw();
    const bool low_out = random() % 2 == 0;
    const bool high_out = random() % 2 == 0;
    GrammarBuilder builder;
    const auto grammar = builder.finish(
        add_decimals(builder, bound_of(low, low_out), bound_of(high, high_out)), {}, "n");
    for (int k = 0; k < 200; ++k) {
      const int64_t value =
          (static_cast<int64_t>(random() % 4001) - 2000) * (scale == 1 ? 1 : scale / 10);
      const int64_t size = std::abs(value);  // in ten-thousandths
      std::string text = (value < 0 ? "-" : "") + std::to_string(size / 10'000);
      std::string fraction = std::to_string(10'000 + size % 10'000).substr(1);
      while (random() % 3 != 0 && fraction.ends_with('0')) fraction.pop_back();
      if (!fraction.empty()) text += "." + fraction;
      const bool above = low_out ? value > low * 10 : value >= low * 10;
      const bool under = high_out ? value < high * 10 : value <= high * 10;
      ASSERT_EQ(grammar && takes(*grammar, text), above && under)
          << low << (low_out ? "<" : "<=") << text << (high_out ? "<" : "<=") << high;
    }
  }
}

// What never fits is no want of room that passes.
TEST(Grammar, WhatIsTooLargeIsInvalidAndNamesItsPlace) {
  const std::string text(kGrammarTextMax + 1, 'a');
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 2000; ++i) {
    const std::string next = " r" + std::to_string(i + 1);
    chain += "r" + std::to_string(i) + " ::=" + next + next + " | \"a\"\n";
  }
  chain += "r2000 ::= \"b\"";
  const std::vector<std::pair<Result<Grammar>, std::string>> cases = {
      {regex_grammar(text, "s.regex"), "s.regex: wanted at most 65536 bytes, found 65537"},
      {form_grammar(text, "s.grammar"), "s.grammar: wanted at most 65536 bytes, found 65537"},
      {regex_grammar(std::string(60'000, '.'), "s.regex"), "s.regex: wanted a form of at most"},
      {form_grammar(chain, "s.grammar"),
       "s.grammar: wanted rules of which at most 256 begin with one another in a row, found more "
       "at \"r"}};
  for (const auto& [grammar, message] : cases) {
    ASSERT_FALSE(grammar) << message;
    EXPECT_EQ(grammar.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(grammar.error().message, StartsWith(message));
  }
}

TEST(Machine, APositionOutlivesAClearing) {
  const auto grammar = form_grammar("root ::= \"(\" root \")\" root | [a-z]*", "g");
  ASSERT_TRUE(grammar);
  GrammarMachine machine(*grammar);
  const auto next = [&](GrammarMachine::Position at, std::string_view text) {
    for (const char c : text) at = machine.next(at, grammar->symbol_class[static_cast<uint8_t>(c)]);
    return at;
  };
  const std::string begun = "((a)((bc)d";
  const auto numbers = machine.written(next(machine.start(), begun));
  machine.clear();
  next(machine.start(), ")))((((");
  const GrammarMachine::Position at = machine.read(numbers);
  EXPECT_EQ(machine.written(at), numbers);
  EXPECT_EQ(at, next(machine.start(), begun));
  EXPECT_TRUE(machine.complete(next(at, "))")));
  EXPECT_EQ(next(at, ")))"), GrammarMachine::kDead);
}

TEST(Machine, EqualTextsOfDifferentWaysAreOnePosition) {
  const auto grammar =
      form_grammar("root ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= [0-9]+", "g");
  ASSERT_TRUE(grammar);
  GrammarMachine machine(*grammar);
  const auto at = [&](std::string_view text) {
    GrammarMachine::Position p = machine.start();
    for (const char c : text) p = machine.next(p, grammar->symbol_class[static_cast<uint8_t>(c)]);
    return p;
  };
  EXPECT_EQ(at("[1,22,3"), at("[4,5"));
  EXPECT_NE(at("[1,"), at("["));
}

TEST(Grammar, EqualFormsHaveOneDigestAndOthersAnother) {
  const auto one = regex_grammar("a|b", "r");
  const auto same = regex_grammar("a|b", "r");
  const auto other = regex_grammar("a|c", "r");
  const auto framed = regex_grammar("a|b", "r", {.thinking = true});
  ASSERT_TRUE(one && same && other && framed);
  EXPECT_EQ(one->digest, same->digest);
  EXPECT_NE(one->digest, other->digest);
  EXPECT_NE(one->digest, framed->digest);
}

TEST(Grammar, TheFrameTakesReasoningUpToItsFirstEnd) {
  const auto grammar = regex_grammar("yes|no", "r", {.thinking = true});
  ASSERT_TRUE(grammar);
  EXPECT_TRUE(takes(*grammar, "</think>yes"));
  EXPECT_TRUE(takes(*grammar, "hm \xFF <</thin</think>\n\nno"));
  EXPECT_EQ(taken(*grammar, "yes"), Taken::kBegun);
  EXPECT_EQ(taken(*grammar, "a</think>b</think>yes"), Taken::kNo);
  EXPECT_EQ(taken(*grammar, "a</think>\n\n\nyes"), Taken::kNo);
}

TEST(Grammar, TheFrameTakesABlockOfCallsInsteadOfTheForm) {
  const auto grammar = regex_grammar("yes", "r", {.thinking = true, .calls = true});
  ASSERT_TRUE(grammar);
  EXPECT_TRUE(takes(*grammar, "a</think>yes"));
  EXPECT_TRUE(takes(*grammar, "a</think>\n\n<｜DSML｜ calls>\nanything"));
  EXPECT_TRUE(takes(*grammar, "</think><｜DSML｜ calls>"));
  EXPECT_EQ(taken(*grammar, "a</think>\n\n<｜DSML｜ invoke"), Taken::kNo);
  EXPECT_EQ(taken(*grammar, "a</think>yes<"), Taken::kNo);
}

}  // namespace
}  // namespace fathom
