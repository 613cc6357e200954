// UTF-8 stepping, the byte alphabet and the class table.

#include "text/utf8.h"

#include <gtest/gtest.h>

#include "text/byte_alphabet.h"
#include "text/golden_test.h"
#include "text/unicode_classes.h"

namespace fathom {
namespace {

std::string decided(std::string_view bytes, size_t* used) {
  std::string text;
  *used = utf8_append_decided(bytes, &text);
  return text;
}

TEST(Utf8, EveryCodePointMakesTheRoundTrip) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    utf8_append(&text, c);
    const Utf8Step step = utf8_step(text);
    ASSERT_EQ(step.kind, Utf8Step::Kind::kCodePoint);
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.length, text.size());
    const char* p = text.data();
    ASSERT_EQ(utf8_next(&p), c);
    ASSERT_EQ(p, text.data() + text.size());
    for (size_t n = 1; n < text.size(); ++n) {
      const Utf8Step cut = utf8_step(std::string_view(text).substr(0, n));
      ASSERT_EQ(cut.kind, Utf8Step::Kind::kIncomplete);
      ASSERT_EQ(cut.length, n);
    }
  }
}

TEST(Utf8, IllFormedBytesFollowTheMaximalSubpartRule) {
  const std::string r = "\xEF\xBF\xBD";
  size_t used = 0;
  // The examples of the Unicode Standard, tables 3-8 to 3-11.
  EXPECT_EQ(decided("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", &used),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(decided("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", &used),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(decided("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", &used),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(decided("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", &used), r + r + r + r + "A");
  EXPECT_EQ(used, 9u);
  EXPECT_EQ(decided("x\xF0\x9F\x98", &used), "x");
  EXPECT_EQ(used, 1u);
  EXPECT_EQ(utf8_valid_prefix("abcdefgh\xC3\xA9 \xC3"), 11u);
}

TEST(ByteAlphabet, TakesAllBytesAndNothingElse) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  EXPECT_EQ(symbols_to_bytes(bytes_to_symbols(bytes)), bytes);
  EXPECT_EQ(bytes_to_symbols(" \n\xFF"), "\xC4\xA0\xC4\x8A\xC3\xBF");
  EXPECT_EQ(symbols_to_bytes(" "), std::nullopt);
  EXPECT_EQ(symbols_to_bytes("\xC5\x84"), std::nullopt);  // U+0144
  EXPECT_EQ(symbols_to_bytes("\xC4"), std::nullopt);
}

TEST(UnicodeClasses, TableEqualsTheGoldenRanges) {
  const auto golden = golden_json("tokenizer/unicode_classes.json");
  const std::pair<const char*, UnicodeClass> classes[] = {
      {"L", UnicodeClass::kLetter}, {"M", UnicodeClass::kMark},
      {"N", UnicodeClass::kNumber}, {"P", UnicodeClass::kPunctuation},
      {"S", UnicodeClass::kSymbol}, {"space", UnicodeClass::kSpace}};
  for (const auto& [name, unicode_class] : classes) {
    std::vector<CodePointRange> wanted;
    for (const auto& range : golden.at(name).as_array()) {
      const auto hex = [&](int i) {
        return static_cast<char32_t>(std::stoul(string_of(range.at(i)), nullptr, 16));
      };
      wanted.push_back({hex(0), hex(1)});
    }
    const auto table = unicode_class_ranges(unicode_class);
    EXPECT_EQ(std::vector(table.begin(), table.end()), wanted) << name;
    for (const auto& range : wanted) {
      EXPECT_TRUE(unicode_class_contains(unicode_class, range.first));
      EXPECT_TRUE(unicode_class_contains(unicode_class, range.last));
      EXPECT_EQ(unicode_class_contains(unicode_class, range.last + 1), false) << name;
    }
  }
}

}  // namespace
}  // namespace fathom
