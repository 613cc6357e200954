// Numbers against the values that Python and the published server library print; strings and
// structure against RFC 8259.

#include "text/json_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

namespace fathom {
namespace {

std::string again(const std::string& text) {
  const auto value = parse_json(text);
  return value ? json_text(*value) : "refused";
}

TEST(JsonText, NumbersAreWrittenInOneForm) {
  const std::pair<const char*, const char*> cases[] = {
      {"-0", "-0.0"},
      {"0", "0"},
      {"-0.0", "-0.0"},
      {"1E5", "100000.0"},
      {"1.50", "1.5"},
      {"17.0e-3", "0.017"},
      {"1e15", "1000000000000000.0"},
      {"1e16", "1e+16"},
      {"123456789012345680.0", "1.2345678901234568e+17"},
      {"1e-4", "0.0001"},
      {"0.0001234", "0.0001234"},
      {"0.00001", "1e-05"},
      {"9.5e-5", "9.5e-05"},
      {"1e-7", "1e-07"},
      {"1e20", "1e+20"},
      {"1e23", "1e+23"},
      {"8.41e21", "8.41e+21"},
      {"1e308", "1e+308"},
      {"1e-400", "0.0"},
      {"-1e-400", "-0.0"},
      {"0e999999999999999999999", "0.0"},
      {"0.001e-9223372036854775807", "0.0"},
      {"4.9e-324", "5e-324"},
      {"2.4e-324", "0.0"},
      {"2.2250738585072011e-308", "2.225073858507201e-308"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"179769313486231580793728971405301e276", "1.7976931348623157e+308"},
      {"18446744073709551615", "18446744073709551615"},
      {"18446744073709551616", "1.8446744073709552e+19"},
      {"-9223372036854775808", "-9223372036854775808"},
      {"-9223372036854775809", "-9.223372036854776e+18"},
      {"100000000000000000000", "1e+20"},
      {"9007199254740993.0", "9007199254740992.0"},
      {"0.1234567890123456789012345", "0.12345678901234568"},
      {"1.00000000000000011102230246251565404236316680908203125", "1.0"},
  };
  for (const auto& [literal, wanted] : cases) EXPECT_EQ(again(literal), wanted) << literal;
}

TEST(JsonText, EveryDoubleReadsBackTheSame) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 100000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    const auto read = parse_json(json_double(value));
    ASSERT_TRUE(read);
    ASSERT_NE(read->as_double(), nullptr) << json_double(value);
    EXPECT_EQ(std::bit_cast<uint64_t>(*read->as_double()), std::bit_cast<uint64_t>(value));
  }
}

TEST(JsonText, StringsKeepEverythingButControlCharactersRaw) {
  EXPECT_EQ(again(R"("a\/b\u00e9\u2028\u007f\u0000\u001f\b\f\n\r\t\"\\")"),
            "\"a/bé\u2028\x7f\\u0000\\u001f\\b\\f\\n\\r\\t\\\"\\\\\"");
  EXPECT_EQ(again(R"("\ud83d\ude00 \uFFFF")"), "\"\U0001F600 \uFFFF\"");
}

TEST(JsonText, ARepeatedKeyKeepsItsFirstPlaceAndItsLastValue) {
  EXPECT_EQ(again(R"({"b":1,"a":[],"b":{"x":null}})"), R"({"b": {"x": null}, "a": []})");
  std::string many = "{";
  std::string wanted = "{";
  for (int i = 0; i < 40; ++i) {
    many += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
    wanted += (i > 0 ? ", " : "") + ("\"k" + std::to_string(i)) +
              "\": " + (i == 3 || i == 30 ? "true" : std::to_string(i));
  }
  EXPECT_EQ(again(many + "\"k30\":true,\"k3\":true}"), wanted + "}");
  const JsonLimits once = {.repeated_keys = false};
  EXPECT_TRUE(parse_json(R"({"a":{"a":1},"b":[{"a":1},{"a":2}]})", once));
  const auto refused = parse_json(R"([{"a":1,"b":2,"a":3}])", once);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "JSON: byte 19: wanted each key once, found \"a\" again");
}

TEST(JsonText, RefusesWhatIsNotJson) {
  for (const char* text : {"",
                           " ",
                           "nul",
                           "tRue",
                           "01",
                           "-",
                           "1.",
                           ".5",
                           "+1",
                           "1e",
                           "1e+",
                           "NaN",
                           "1e400",
                           "10e9223372036854775807",
                           "[1,]",
                           "{\"a\":1,}",
                           "[1 2]",
                           "{\"a\" 1}",
                           "{a:1}",
                           "\"",
                           "\"\\x\"",
                           "\"\t\"",
                           "\"\\u12\"",
                           "\"\\ud800\"",
                           "\"\\udc00\\ud800\"",
                           "\"\\ud800\\u0041\"",
                           "\"\xFF\"",
                           "\"\xED\xA0\x80\"",
                           "1 x",
                           "//x\n1",
                           "\xEF\xBB\xBF{}",
                           "[",
                           "{",
                           "{\"a\"",
                           "{\"a\":"}) {
    const auto value = parse_json(text);
    ASSERT_FALSE(value) << text;
    EXPECT_EQ(value.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(value.error().message.find('\n'), std::string::npos) << text;
    EXPECT_TRUE(value.error().message.starts_with("JSON: byte ")) << value.error().message;
  }
}

TEST(JsonText, DepthAndSizeAreBounded) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_TRUE(parse_json(nested(127)));
  EXPECT_FALSE(parse_json(nested(128)));
  EXPECT_FALSE(parse_json(std::string(1000000, '[')));
  EXPECT_TRUE(parse_json("[1]", {.bytes_max = 3}));
  const auto large = parse_json("[1] ", {.bytes_max = 3});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::kExhausted);
}

TEST(JsonText, EscapingInPiecesIsEscapingTheWhole) {
  const std::string text = "a\"\\\n\x01é\x7f\xFF";
  std::string pieces;
  for (const char c : text) append_json_escaped(&pieces, std::string_view(&c, 1));
  EXPECT_EQ("\"" + pieces + "\"", json_quoted(text));
}

}  // namespace
}  // namespace fathom
