// Reading the tools text: Python literals in every form, and the placeholders in them.

#include "text/tools_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/python_literal.h"

namespace fathom {
namespace {

using testing::HasSubstr;

std::string literal(const std::string& source) {
  const auto value = find_python_string(source, "X");
  if (!value) return "refused " + value.error().message;
  return value->value_or("absent");
}

TEST(PythonLiteral, ReadsEveryKindOfString) {
  EXPECT_EQ(literal("X = 'a\"b'"), "a\"b");
  EXPECT_EQ(literal("X: str = \"\"\"a\n'b'\"\"\"\n"), "a\n'b'");
  EXPECT_EQ(literal("import os\nXX = 'no'\n X = 'no'\nX='''\\\nyes\\n'''  # why\n"), "yes\n");
  EXPECT_EQ(literal("X = (\n  'a'  # one\n  \"b\\\n\"\n  r'\\n' f'{c}'\n)\n"), "ab\\n{c}");
  EXPECT_EQ(literal("X = 'a' \\\n  'b'"), "ab");
  EXPECT_EQ(literal("X = 'a'; Y = 5"), "a");
  EXPECT_EQ(literal("X = '\\x41\\u00e9\\U0001F600\\101\\0\\q\\'\\t'"),
            std::string("Aé\U0001F600A\0\\q'\t", 13));
  EXPECT_EQ(literal("X = '''a\r\nb'''\r\n"), "a\nb");
  EXPECT_EQ(literal("X == 'a'\nY = 'b'"), "absent");
  EXPECT_EQ(literal(""), "absent");
}

TEST(PythonLiteral, RefusesWhatIsNotOneString) {
  for (const char* source :
       {"X = 5", "X = 'a", "X = 'a\nb'", "X = '''a", "X = b'a'", "X = 'a' + 'b'", "X = f(y)",
        "X = ('a', 'b')", "X = ('a'", "X = '\\N{DASH}'", "X = '\\x4'", "X = '\\ud800'", "X = '\\",
        "X = r'\\", "X = r\"\\", "X = r'''\\", "X = r'a\\'", "X = ", "X = 'a'.strip()"}) {
    EXPECT_THAT(literal(source), HasSubstr("refused X: wanted ")) << source;
  }
}

TEST(ToolsTemplate, FillsThePlaceholdersAndMarksTheMarkers) {
  const auto parsed = parse_encoding_source(
      "dash: str = ' -'\n"
      "TOOLS_TEMPLATE = \"\"\"<{dsml_token}{tc_block_name}>{tool_call_tag_name}"
      "{tool_parameter_tag_name}{dash} {{x}}\n{tool_schemas}\n{thinking_start_token}|"
      "{thinking_end_token}\"\"\"\n");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->head.text, "<｜DSML｜ calls> invoke parameter - {x}\n");
  EXPECT_EQ(parsed->tail.text, "\n<think>|</think>");
  EXPECT_EQ(parsed->head.markers, (std::vector<ByteRange>{{1, 11}}));
  EXPECT_EQ(parsed->tail.markers, (std::vector<ByteRange>{{1, 8}, {9, 17}}));
}

TEST(ToolsTemplate, RefusesBrokenTexts) {
  for (const char* format :
       {"", "no schemas", "{tool_schemas}{tool_schemas}", "{tool_schemas}}", "{tool_schemas",
        "}{tool_schemas}", "{what}{tool_schemas}", "{}{tool_schemas}"}) {
    const auto parsed = parse_tools_template(format);
    ASSERT_FALSE(parsed) << format;
    EXPECT_THAT(parsed.error().message, HasSubstr("tools template: ")) << format;
  }
  EXPECT_FALSE(parse_encoding_source("tools_template = '{tool_schemas}'"));
  EXPECT_FALSE(parse_encoding_source("TOOLS_TEMPLATE = 5"));
  EXPECT_FALSE(parse_encoding_source("TOOLS_TEMPLATE = r\"abc\\"));
}

TEST(ToolsTemplate, BoundsThePlaceholders) {
  std::string format = "{tool_schemas}";
  for (int i = 1; i < 256; ++i) format += "{tc_block_name}";
  EXPECT_TRUE(parse_tools_template(format));
  const auto parsed = parse_tools_template(format + "{tc_block_name}");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().message, "tools template: wanted at most 256 placeholders, found more");
}

}  // namespace
}  // namespace fathom
