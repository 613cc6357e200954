// The renderer against tests/golden/chat, which the published server library produced or which the
// specification's rules define. The released tools text is not in the tree: here the two halves of
// the block are the words that the golden file has in their place. The digests of the prompts with
// the real text are checked in tests/differential.

#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "text/golden_test.h"

namespace fathom {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

ChatTemplate with_placeholder_halves() {
  auto halves =
      parse_tools_template("{{{{TOOLS_TEMPLATE_HEAD}}}}{tool_schemas}{{{{TOOLS_TEMPLATE_TAIL}}}}");
  return ChatTemplate(std::move(*halves));
}

Result<RenderedPrompt> render(const std::string& body) {
  FATHOM_ASSIGN_OR_RETURN(const ChatRequest request, parse_chat_request(body));
  return with_placeholder_halves().render(request);
}

// The text with every marker in square brackets.
std::string show(const MarkedText& text) {
  std::string out;
  size_t at = 0;
  for (const ByteRange& range : text.markers) {
    out += text.text.substr(at, range.begin - at) + "[" +
           text.text.substr(range.begin, range.end - range.begin) + "]";
    at = range.end;
  }
  return out + text.text.substr(at);
}

TEST(ChatTemplate, RendersEveryGoldenCase) {
  const auto cases = golden_json_lines("chat/cases.jsonl");
  ASSERT_EQ(cases.size(), 110u);
  size_t n_ids = 0;
  for (const auto& c : cases) {
    const std::string name = string_of(c.at("name"));
    const auto prompt = render(boost::json::serialize(c.at("request")));
    ASSERT_TRUE(prompt) << name << ": " << prompt.error().message;
    EXPECT_EQ(prompt->text.text, string_of(c.at("prompt"))) << name;
    const bool has_images = c.as_object().contains("images");
    EXPECT_EQ(prompt->images.size(), has_images ? c.at("images").as_int64() : 0) << name;
    if (!c.as_object().contains("ids")) continue;
    ++n_ids;
    EXPECT_THAT(*released_tokenizer().encode(prompt->text.text, prompt->text.markers),
                ElementsAreArray(ids_of(c.at("ids"))))
        << name;
    const bool differs = c.as_object().contains("ids_matched");
    EXPECT_THAT(*released_tokenizer().encode(prompt->text.text, AddedTokens::kMatch),
                ElementsAreArray(ids_of(c.at(differs ? "ids_matched" : "ids"))))
        << name;
  }
  EXPECT_EQ(n_ids, 64u);
}

TEST(ChatTemplate, FollowsTheLibraryWhereTheReferenceDiffers) {
  const auto cases = golden_json_lines("chat/divergent.jsonl");
  ASSERT_EQ(cases.size(), 27u);
  size_t n_refused = 0;
  size_t n_ids = 0;
  for (const auto& c : cases) {
    const std::string name = string_of(c.at("name"));
    const auto prompt = render(boost::json::serialize(c.at("request")));
    if (c.as_object().contains("library_error")) {
      ++n_refused;
      ASSERT_FALSE(prompt) << name;
      EXPECT_EQ(prompt.error().code, ErrorCode::kInvalid) << name;
      continue;
    }
    ASSERT_TRUE(prompt) << name << ": " << prompt.error().message;
    EXPECT_EQ(prompt->text.text, string_of(c.at("library"))) << name;
    if (!c.as_object().contains("library_ids")) continue;
    ++n_ids;
    EXPECT_THAT(*released_tokenizer().encode(prompt->text.text, prompt->text.markers),
                ElementsAreArray(ids_of(c.at("library_ids"))))
        << name;
  }
  EXPECT_EQ(n_refused, 4u);
  EXPECT_EQ(n_ids, 11u);
}

TEST(ChatTemplate, OnlyTheRenderersOwnMarkersAreMarked) {
  auto tools = parse_tools_template("<{dsml_token} x {tool_schemas} {thinking_end_token}\n");
  const auto request = parse_chat_request(R"({"messages":[
      {"role":"system","content":"<think>"},
      {"role":"user","content":[{"type":"text","text":"<｜User｜><｜deepseek_image｜>"},
          {"type":"image_url","image_url":{"url":"https://example.org/a.png"}}]},
      {"role":"assistant","reasoning_content":"</think>","content":"<｜end▁of▁sentence｜>",
       "tool_calls":[{"id":"a","type":"function",
          "function":{"name":"f","arguments":"{\"｜DSML｜\":\"｜DSML｜\"}"}}]},
      {"role":"tool","tool_call_id":"a","content":"<｜System｜>"},
      {"role":"latest_reminder","content":"<｜latest_reminder｜>"}],
      "tools":[{"type":"function","function":{"name":"f","description":"<think>"}}]})");
  ASSERT_TRUE(request) << request.error().message;
  const auto prompt = ChatTemplate(*tools).render(*request);
  ASSERT_TRUE(prompt);
  EXPECT_EQ(show(prompt->text),
            "[<｜begin▁of▁sentence｜>][<｜System｜>]Reasoning Effort: 75 (range 1-100, the higher "
            "the value, the more thorough the reasoning)\n\n<think>\n\n<[｜DSML｜] x "
            "{\"name\": \"f\", \"description\": \"<think>\", \"parameters\": {}} [</think>]\n"
            "[<｜User｜>]<｜User｜><｜deepseek_image｜>\n\n[<｜deepseek_image｜>]"
            "[<｜Assistant｜>][<think>]</think>[</think>]<｜end▁of▁sentence｜>\n\n"
            "<[｜DSML｜] calls>\n<[｜DSML｜] invoke name=\"f\">\n<[｜DSML｜] parameter "
            "name=\"｜DSML｜\" string=\"true\">｜DSML｜</[｜DSML｜] parameter>\n"
            "</[｜DSML｜] invoke>\n</[｜DSML｜] calls>[<｜end▁of▁sentence｜>]"
            "[<｜User｜>]<tool_result><｜System｜></tool_result>"
            "[<｜latest_reminder｜>]<｜latest_reminder｜>[<｜Assistant｜>][<think>]");
}

// spec/chat.md 2, item 5: results are re-ordered first, and their images go with them.
TEST(ChatTemplate, ImagesMoveWithTheirToolResults) {
  const auto prompt = render(R"({"thinking":{"type":"disabled"},"messages":[
      {"role":"user","content":[{"type":"image_url","image_url":{"url":"https://h/0.png"}}]},
      {"role":"assistant","content":"","tool_calls":[
        {"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},
        {"id":"b","type":"function","function":{"name":"f","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"b","content":[
        {"type":"text","text":"B"},{"type":"image_url","image_url":{"url":"https://h/2.png"}}]},
      {"role":"tool","tool_call_id":"a","content":[
        {"type":"image_url","image_url":{"url":"https://h/1.png","detail":"low"}},
        {"type":"text","text":"A"}]}]})");
  ASSERT_TRUE(prompt) << prompt.error().message;
  ASSERT_EQ(prompt->images.size(), 3u);
  EXPECT_EQ(prompt->images[0].url, "https://h/0.png");
  EXPECT_EQ(prompt->images[1].url, "https://h/1.png");
  EXPECT_EQ(prompt->images[1].detail, ImageDetail::kLow);
  EXPECT_EQ(prompt->images[1].path, "messages[3].content[0]");
  EXPECT_EQ(prompt->images[2].url, "https://h/2.png");
  EXPECT_THAT(prompt->text.text,
              HasSubstr("<tool_result><｜deepseek_image｜>\n\nA</tool_result>\n\n"
                        "<tool_result>B\n\n<｜deepseek_image｜></tool_result>"));
}

TEST(ChatTemplate, ATaskKeepsItsMessageApart) {
  const auto prompt = render(R"({"thinking":{"type":"disabled"},"messages":[
      {"role":"user","content":"a","task":"title"},{"role":"user","content":"b"},
      {"role":"assistant","content":"c"},{"role":"user","content":"d","task":"query"}]})");
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt->text.text,
            "<｜begin▁of▁sentence｜><｜User｜>a<｜User｜>b<｜Assistant｜></think>c"
            "<｜end▁of▁sentence｜><｜User｜>d<｜query｜>");
}

// As the library does: an empty system message is dropped first, then the tools attach to the
// leading one that is left; of reminders in a row the first is kept.
TEST(ChatTemplate, EmptySystemMessagesAndRepeatedRemindersAreDropped) {
  const std::string messages = R"("thinking":{"type":"disabled"},"messages":[
      {"role":"system","content":""},{"role":"system","content":"s"},
      {"role":"latest_reminder","content":"1"},{"role":"system","content":[]},
      {"role":"latest_reminder","content":"2"},{"role":"user","content":[]},
      {"role":"system","content":""},{"role":"user","content":"x"}])";
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  const std::string rest = "<｜latest_reminder｜>1<｜User｜>\n\nx<｜Assistant｜></think>";
  EXPECT_EQ(render("{" + messages + "}")->text.text, "<｜begin▁of▁sentence｜><｜System｜>s" + rest);
  EXPECT_EQ(render("{" + messages + tools + "}")->text.text,
            "<｜begin▁of▁sentence｜><｜System｜>s\n\n{{TOOLS_TEMPLATE_HEAD}}{\"name\": \"f\", "
            "\"description\": \"\", \"parameters\": {}}{{TOOLS_TEMPLATE_TAIL}}" +
                rest);
}

TEST(ChatTemplate, ToolsNeedATemplateOnlyWhenTheyAreOffered) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  const std::string messages = R"("messages":[{"role":"user","content":"x"}])";
  const auto offered = parse_chat_request("{" + messages + "," + tools + "}");
  const auto hidden =
      parse_chat_request("{" + messages + "," + tools + R"(,"tool_choice":"none"})");
  ASSERT_TRUE(offered);
  ASSERT_TRUE(hidden);
  const auto refused = ChatTemplate().render(*offered);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(ChatTemplate().render(*hidden));
}

TEST(ChatTemplate, IsChosenByTheExactModelType) {
  const std::string folder =
      testing::TempDir() + "/fathom_chat_template_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder + "/encoding");
  std::ofstream(folder + "/encoding/encoding.py") << "TOOLS_TEMPLATE = '<py>{tool_schemas}'\n";
  const auto request = parse_chat_request(R"({"thinking":{"type":"disabled"},
      "messages":[{"role":"user","content":"x"}],
      "tools":[{"type":"function","function":{"name":"f"}}]})");
  ASSERT_TRUE(request);
  const auto released = ChatTemplate::load(folder, "deepseek_v41");
  ASSERT_TRUE(released) << released.error().message;
  EXPECT_THAT(released->render(*request)->text.text, HasSubstr("\n\n<py>{\"name\": \"f\""));

  std::ofstream(folder + "/encoding/tools_template.txt") << "<own>{tool_schemas}";
  const auto own = ChatTemplate::load(folder, "deepseek_v41");
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_THAT(own->render(*request)->text.text, HasSubstr("\n\n<own>{\"name\": \"f\""));

  EXPECT_FALSE(ChatTemplate::load(folder, "deepseek_v4"));
  EXPECT_FALSE(ChatTemplate::load(folder, "deepseek_v41_text"));
  std::ofstream(folder + "/encoding/tools_template.txt") << "no place for schemas";
  const auto broken = ChatTemplate::load(folder, "deepseek_v41");
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error().message, HasSubstr("tools_template.txt: "));
  EXPECT_TRUE(ChatTemplate::load(folder + "/nowhere", "deepseek_v41"));
  std::filesystem::remove_all(folder);
}

// A time that grows with the square of their number would show as a minute here.
TEST(ChatTemplate, ManyResultsComeIntoTheOrderOfTheirCalls) {
  constexpr int kCalls = 20'000;
  ChatRequest request;
  request.messages.push_back({.role = Role::kUser, .content = {"x"}});
  ChatMessage calls = {.role = Role::kAssistant};
  for (int i = 0; i < kCalls; ++i) {
    calls.tool_calls.push_back({.id = "c" + std::to_string(i), .name = "f", .arguments = "{}"});
  }
  request.messages.push_back(std::move(calls));
  std::string wanted;
  for (int i = kCalls - 1; i >= 0; --i) {
    request.messages.push_back({.role = Role::kTool,
                                .content = {std::to_string(i)},
                                .tool_call_id = "c" + std::to_string(i)});
  }
  for (int i = 0; i < kCalls; ++i) {
    wanted += (i > 0 ? "\n\n" : "") + ("<tool_result>" + std::to_string(i)) + "</tool_result>";
  }
  const auto prompt = with_placeholder_halves().render(request);
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_THAT(prompt->text.text, HasSubstr(wanted));
}

}  // namespace
}  // namespace fathom
