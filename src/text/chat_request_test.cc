// Refusals of spec/chat.md, each with the field that the message must name, and the values that an
// accepted request has. What is refused here was refused by the published server library too.

#include "text/chat_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fathom {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kUser = R"({"role":"user","content":"x"})";
constexpr const char* kCall =
    R"({"id":"a","type":"function","function":{"name":"f","arguments":"{}"}})";
constexpr const char* kTool = R"({"type":"function","function":{"name":"f"}})";
const std::string kOff = R"(,"thinking":{"type":"disabled"})";

std::string with_messages(const std::string& messages, const std::string& rest = {}) {
  return "{\"messages\":[" + messages + "]" + rest + "}";
}

std::string with_user(const std::string& rest) { return with_messages(kUser, "," + rest); }

std::string user_part(const std::string& part) {
  return with_messages("{\"role\":\"user\",\"content\":[" + part + "]}");
}

std::string turn(const std::string& members) {
  return std::string(kUser) + ",{\"role\":\"assistant\"," + members + "}";
}

std::string result(const std::string& id) {
  return R"(,{"role":"tool","content":"r","tool_call_id":")" + id + "\"}";
}

std::string tool(const std::string& function) {
  return with_user(R"("tools":[{"type":"function","function":)" + function + "}]");
}

struct Refusal {
  std::string field;
  std::string body;
};

void expect_refused(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    const auto request = parse_chat_request(refusal.body);
    ASSERT_FALSE(request) << refusal.body;
    EXPECT_EQ(request.error().code, ErrorCode::kInvalid) << refusal.body;
    EXPECT_THAT(request.error().message, StartsWith(refusal.field + ": wanted ")) << refusal.body;
    EXPECT_THAT(request.error().message, HasSubstr(", found ")) << refusal.body;
    EXPECT_EQ(request.error().message.find('\n'), std::string::npos) << refusal.body;
  }
}

TEST(ChatRequest, RefusesMessagesOfAnotherForm) {
  const std::string call_list = "\"tool_calls\":[";
  expect_refused({
      {"JSON: byte 0", ""},
      {"request", "[]"},
      {"messages", "{}"},
      {"messages", R"({"messages":null})"},
      {"messages", R"({"messages":[]})"},
      {"messages[0]", R"({"messages":["x"]})"},
      {"messages[0].role", with_messages(R"({"content":"a"})")},
      {"messages[0].role", with_messages(R"({"role":"developer","content":"a"})")},
      {"messages[0].content", with_messages(R"({"role":"user"})")},
      {"messages[0].content", with_messages(R"({"role":"user","content":null})")},
      {"messages[0].content", with_messages(R"({"role":"system","content":5})")},
      {"messages[0].content", with_messages(R"({"role":"latest_reminder","content":[]})")},
      {"messages[0].name", with_messages(R"({"role":"user","content":"a","name":5})")},
      {"messages[0].content[0]", user_part("\"a\"")},
      {"messages[0].content[0].type", user_part(R"({"text":"a"})")},
      {"messages[0].content[0].type", user_part(R"({"type":"video_url"})")},
      {"messages[0].content[0].text", user_part(R"({"type":"text"})")},
      {"messages[0].content[0].image_url", user_part(R"({"type":"image_url","image_url":"a"})")},
      {"messages[0].content[0].image_url.url",
       user_part(R"({"type":"image_url","image_url":{"url":"ftp://x"}})")},
      {"messages[0].content[0].image_url.detail",
       user_part(R"({"type":"image_url","image_url":{"url":"http://x","detail":"big"}})")},
      {"messages[1].content", with_messages(turn(R"("content":null)"))},
      {"messages[1].content[0]",
       with_messages(turn(R"("content":[{"type":"image_url","image_url":{"url":"http://x"}}])"))},
      {"messages[1].reasoning_content",
       with_messages(turn(R"("content":"a","reasoning_content":5)"))},
      {"messages[1].prefix", with_messages(turn(R"("content":"a","prefix":1)"))},
      {"messages[1].prefix", with_messages(turn(R"("content":"a","prefix":true)") + "," + kUser)},
      {"messages[1].tool_calls", with_messages(turn("\"content\":\"a\"," + call_list + "]"))},
      {"messages[1].tool_calls[0].type", with_messages(turn(call_list + "{\"id\":\"a\"}]"))},
      {"messages[1].tool_calls[0].function.arguments",
       with_messages(turn(call_list + R"({"id":"a","type":"function","function":{"name":"f"}}])"))},
      {"messages[0].task", with_messages(R"({"role":"user","content":"a","task":"sing"})")},
      {"messages[0].task", with_messages(R"({"role":"system","content":"a","task":"query"})")},
  });
}

TEST(ChatRequest, RefusesResultsThatDoNotFollowTheirCalls) {
  const std::string one = turn("\"tool_calls\":[" + std::string(kCall) + "]");
  const std::string twice =
      turn("\"tool_calls\":[" + std::string(kCall) + "," + std::string(kCall) + "]");
  expect_refused({
      {"messages[1]", with_messages(std::string(kUser) + result("a"))},
      {"messages[1].tool_calls", with_messages(one)},
      {"messages[1].tool_calls", with_messages(one + result("b"))},
      {"messages[1].tool_calls", with_messages(one + "," + kUser + result("a"))},
      {"messages[1].tool_calls", with_messages(twice + result("a") + result("a"))},
      {"messages[3]", with_messages(one + result("a") + result("a"))},
      {"messages[2].tool_call_id", with_messages(one + R"(,{"role":"tool","content":"x"})")},
  });
  EXPECT_TRUE(parse_chat_request(with_messages(one + result("a") + "," + kUser)));
}

TEST(ChatRequest, RefusesToolsOfAnotherForm) {
  expect_refused({
      {"tools", with_user(R"("tools":{})")},
      {"tools[0]", with_user(R"("tools":[1])")},
      {"tools[0].type", with_user(R"("tools":[{"type":"web_search"}])")},
      {"tools[0].function", with_user(R"("tools":[{"type":"function"}])")},
      {"tools[0].function.name", tool("{}")},
      {"tools[0].function.name", tool(R"({"name":""})")},
      {"tools[0].function.name", tool(R"({"name":"a b"})")},
      {"tools[0].function.name", tool(R"({"name":"fs::read"})")},
      {"tools[0].function.name", tool("{\"name\":\"" + std::string(129, 'a') + "\"}")},
      {"tools[0].function.description", tool(R"({"name":"f","description":5})")},
      {"tools[0].function.strict", tool(R"({"name":"f","strict":"x"})")},
      {"tools[0].function.parameters", tool(R"({"name":"f","parameters":[]})")},
      {"tools[0].function.parameters.type", tool(R"({"name":"f","parameters":{}})")},
      {"tools[0].function.parameters.properties.a",
       tool(R"({"name":"f","strict":true,"parameters":{"type":"object","properties":{"a":{}}}})")},
      {"tools[1].function.name",
       with_user("\"tools\":[" + std::string(kTool) + "," + std::string(kTool) + "]")},
      {"tools", with_user("\"tools\":[" + std::string(kTool) +
                          R"(,{"type":"function","function":{"name":"g","strict":true}}])")},
      {"response_format",
       with_user(R"("tools":[{"type":"function","function":{"name":"g","strict":true}}],)"
                 R"("response_format":{"type":"text"})")},
      {"tool_choice", with_user(R"("tool_choice":"any")")},
      {"tool_choice.type", with_user(R"("tool_choice":{"type":"tool"})")},
      {"tool_choice.function.name",
       with_user("\"tools\":[" + std::string(kTool) +
                 R"(],"tool_choice":{"type":"function","function":{"name":"g"}})" + kOff)},
      {"tool_choice",
       with_user("\"tools\":[" + std::string(kTool) + R"(],"tool_choice":"required")")},
  });
  EXPECT_TRUE(parse_chat_request(with_user(R"("tool_choice":"required")")));
  const std::string unchecked =
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{}}}])";
  EXPECT_FALSE(parse_chat_request(with_user(unchecked)));
  EXPECT_TRUE(parse_chat_request(with_user(unchecked + R"(,"tool_choice":"none")")));
}

TEST(ChatRequest, NamesWithANamespaceAreTakenWhereTheyAreAskedFor) {
  const auto parse = [](const std::string& name, ToolNames names) {
    return parse_chat_request(*parse_json(tool(R"({"name":")" + name + "\"}")), {.names = names});
  };
  EXPECT_TRUE(parse("a::b", ToolNames::kNamespaced));
  EXPECT_FALSE(parse("a::b", ToolNames::kPlain));
  for (const char* bad : {"::b", "a::", "a::b::c", "a:b", ""}) {
    EXPECT_FALSE(parse(bad, ToolNames::kNamespaced)) << bad;
  }
}

TEST(ChatRequest, RefusesOtherMembersOfAnotherForm) {
  const std::string prefix = turn(R"("content":"json","prefix":true)");
  expect_refused({
      {"thinking", with_user(R"("thinking":true)")},
      {"thinking.type", with_user(R"("thinking":{})")},
      {"thinking.type", with_user(R"("thinking":{"type":"auto"})")},
      {"reasoning_effort", with_user(R"("reasoning_effort":"LOW")")},
      {"reasoning_effort", with_user(R"("reasoning_effort":0)")},
      {"reasoning_effort", with_user(R"("reasoning_effort":101)")},
      {"reasoning_effort", with_user(R"("reasoning_effort":7.0)")},
      {"response_format", with_user(R"("response_format":"x")")},
      {"response_format.type", with_user(R"("response_format":{"type":"xml"})")},
      {"response_format.type", with_user(R"("response_format":{"type":"json_object"})")},
      {"response_format.json_schema", with_user(R"("response_format":{"type":"json_schema"})")},
      {"response_format.json_schema.schema",
       with_user(R"("response_format":{"type":"json_schema","json_schema":{"schema":5}})")},
      {"response_format.regex", with_user(R"("response_format":{"type":"regex"})")},
      {"stop", with_user(R"("stop":5)")},
      {"stop[1]", with_user(R"("stop":["a",""])")},
      {"stop[0]", with_user(R"("stop":[")" + std::string(kStopBytesMax + 1, 'x') + "\"]")},
      {"messages[1].prefix", with_messages(prefix, ",\"tools\":[" + std::string(kTool) + "]")},
      {"messages[1].prefix", with_messages(prefix, R"(,"response_format":{"type":"json_object"})")},
  });
}

TEST(ChatRequest, EffortNamesAndThinking) {
  const std::pair<const char*, int> names[] = {{"minimal", 50}, {"low", 50},   {"medium", 75},
                                               {"high", 75},    {"xhigh", 75}, {"max", 100},
                                               {"ultra", 100}};
  for (const auto& [name, effort] : names) {
    const auto request =
        parse_chat_request(with_user("\"reasoning_effort\":\"" + std::string(name) + "\""));
    ASSERT_TRUE(request);
    EXPECT_EQ(request->effort, effort);
    EXPECT_TRUE(request->thinking);
  }
  EXPECT_EQ(parse_chat_request(with_user(R"("reasoning_effort":7)"))->effort, 7);
  EXPECT_FALSE(parse_chat_request(with_user(R"("reasoning_effort":"none")"))->thinking);
  EXPECT_TRUE(
      parse_chat_request(with_user(R"("reasoning_effort":"none","thinking":{"type":"enabled"})"))
          ->thinking);
}

TEST(ChatRequest, TheWordJsonMayHaveAnyCaseAndRole) {
  const std::string format = R"(,"response_format":{"type":"json_object"})";
  EXPECT_TRUE(parse_chat_request(
      with_messages(R"({"role":"latest_reminder","content":"as JsonL"})", format)));
  EXPECT_FALSE(parse_chat_request(with_messages(
      R"({"role":"user","content":[{"type":"text","text":"js"},{"type":"text","text":"on"}]})",
      format)));
}

TEST(ChatRequest, OfferedToolsFollowTheChoice) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}},
      {"type":"function","function":{"name":"g"}}])";
  const auto names = [&tools](const std::string& choice) {
    const auto request = parse_chat_request(with_user(tools + choice + kOff));
    std::vector<std::string> out;
    for (const ToolDefinition* offered : offered_tools(*request)) out.push_back(offered->name);
    out.push_back(forces_tool_call(*request) ? "forced" : "free");
    return out;
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(names(""), (List{"f", "g", "free"}));
  EXPECT_EQ(names(R"(,"tool_choice":"none")"), (List{"free"}));
  EXPECT_EQ(names(R"(,"tool_choice":"required")"), (List{"f", "g", "forced"}));
  EXPECT_EQ(names(R"(,"tool_choice":{"type":"function","function":{"name":"g"}})"),
            (List{"g", "forced"}));
}

}  // namespace
}  // namespace fathom
