// Goal: the input of a custom tool is what was escaped, however its arguments come. Method: texts
// with every kind of escape, cut at every place and byte by byte.
#include "serve/custom_input.h"

#include <gtest/gtest.h>

#include "text/json_text.h"

namespace fathom {
namespace {

std::string input_of(const std::vector<std::string>& pieces) {
  CustomInput input;
  std::string text;
  for (const std::string& piece : pieces) text += input.push(piece);
  return text + input.flush();
}

void expect_input(const std::string& arguments, const std::string& want) {
  EXPECT_EQ(input_of({arguments}), want);
  std::vector<std::string> bytes;
  for (const char byte : arguments) bytes.emplace_back(1, byte);
  EXPECT_EQ(input_of(bytes), want);
  for (size_t cut = 1; cut < arguments.size(); ++cut) {
    EXPECT_EQ(input_of({arguments.substr(0, cut), arguments.substr(cut)}), want) << cut;
  }
}

TEST(CustomInput, IsTheTextOfTheOneParameter) {
  const std::string patch = "*** Begin\n\"q\" \\ \t\x01\x7f é 港 🙂\r\n";
  expect_input("{\"input\": " + json_quoted(patch) + "}", patch);
  expect_input(R"({"input": "B", "z": "C"})", "B");
  expect_input(R"({"input": ""})", "");
}

TEST(CustomInput, ArgumentsOfAnotherFormStayAsTheyAre) {
  for (const char* arguments : {R"({"zz": "B"})", R"({"input": B})", "{}", R"({"i)", ""}) {
    expect_input(arguments, arguments);
  }
}

TEST(CustomInput, CutTextIsGivenAsFarAsItIsCertain) {
  expect_input(R"({"input": "ab\)", "ab");
  expect_input(R"({"input": "ab\u00)", "ab");
}

}  // namespace
}  // namespace fathom
