// Goal: a refusal of a Messages or Responses body names the field as that body has it. What the
// published library takes is in golden_calls_test.cc and tests/differential.
#include <gtest/gtest.h>

#include "serve/answer_form.h"
#include "serve/messages_call.h"
#include "serve/responses_call.h"
#include "text/chat_template.h"

namespace fathom {
namespace {

constexpr const char* kUser = R"({"role":"user","content":"x"})";
constexpr const char* kUse =
    R"({"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]})";

std::string messages(const std::string& list, const std::string& more = {}) {
  const auto call = parse_messages_call("{\"messages\":[" + list + "]" + more + "}");
  return call ? "" : call.error().message;
}

std::string with_block(const std::string& block) {
  return messages(R"({"role":"user","content":[)" + block + "]}");
}

TEST(MessagesCall, ARefusalNamesTheField) {
  EXPECT_EQ(messages(""), "messages: wanted at least one message, found none");
  EXPECT_EQ(messages(R"({"role":"tool","content":"x"})"),
            "messages[0].role: wanted user, assistant or system, found \"tool\"");
  EXPECT_EQ(with_block(R"({"type":"audio"})"),
            "messages[0].content[0].type: wanted text, image, document or tool_result in a user's "
            "turn, found \"audio\"");
  EXPECT_EQ(with_block(R"({"type":"image","source":{"type":"file","file_id":"f"}})"),
            "messages[0].content[0].source.type: wanted base64 or url, found \"file\"");
  EXPECT_EQ(with_block(R"({"type":"image","source":{"type":"url","url":"ftp://a"}})"),
            "messages[0].content[0].source.url: wanted an http, https or data URL, found "
            "\"ftp://a\"");
  EXPECT_EQ(messages(std::string(kUser) + "," + kUse + "," + kUser),
            "messages[2].content: wanted a tool_result for each tool_use before it, found none for "
            "\"a\"");
  EXPECT_EQ(messages(kUser, R"(,"tools":[{"name":"a b","input_schema":{"type":"object"}}])"),
            "tools[0].name: wanted 1 to 128 characters of [a-zA-Z0-9_-], found \"a b\"");
  EXPECT_EQ(messages(kUser, R"(,"tools":[{"name":"f"}])"),
            "tools[0].input_schema: wanted a schema, found nothing");
  EXPECT_EQ(messages(kUser, R"(,"tools":[{"name":"f","input_schema":{"type":5}}])").substr(0, 24),
            "tools[0].input_schema.ty");
  EXPECT_EQ(messages(kUser, R"(,"tools":[{"type":"bash_20250124","name":"bash"}])"),
            "tools[0].type: wanted custom, for a tool of the client, found \"bash_20250124\"");
  EXPECT_EQ(messages(kUser, R"(,"stop_sequences":[""])"),
            "stop_sequences[0]: wanted a string that is not empty, found \"\"");
  EXPECT_EQ(messages(kUser, R"(,"output_config":{"effort":500})"),
            "output_config.effort: wanted a name or an integer from 1 to 100, found 500");
  EXPECT_EQ(messages(kUser, R"(,"max_tokens":0)").substr(0, 31), "max_tokens: wanted an integer f");
}

TEST(MessagesCall, EmptySystemMessagesAndTextsAreKeptAsTheLibraryKeepsThem) {
  const auto call = parse_messages_call(
      R"({"system":"","messages":[{"role":"assistant","content":[{"type":"text","text":""},)"
      R"({"type":"text","text":"a"},{"type":"text","text":""}]}]})");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_TRUE(call->request.keeps_empty_system);
  EXPECT_EQ(content_text(call->request.messages[1]), "a\n\n");
}

TEST(MessagesCall, TakesEffortAsANumberAndLowersLargeAnswers) {
  const auto call =
      parse_messages_call(R"({"max_tokens":400000,"output_config":{"effort":42},"messages":[)" +
                          std::string(kUser) + "]}");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(call->request.effort, 42);
  EXPECT_EQ(*answer_tokens(*call, 10, 500'000), kMaxTokensMax);
  EXPECT_EQ(answer_tokens(*call, 10, 100).error().message,
            "max_tokens: wanted at most 90 beside a prompt of 10 tokens in a context of 100, found "
            "400000");
}

TEST(MessagesCall, AFormIsAsWithChatCompletions) {
  const std::string body = "{\"messages\":[" + std::string(kUser) + "]";
  const std::string form = R"({"type":"json_schema","schema":{"type":"object"}})";
  for (const std::string& member :
       {R"(,"output_config":{"format":)" + form + "}", R"(,"output_format":)" + form}) {
    const auto call = parse_messages_call(body + member + "}");
    ASSERT_TRUE(call) << call.error().message;
    const auto chat = parse_chat_call(
        body + R"(,"response_format":{"type":"json_schema","json_schema":{"schema":)" +
        R"({"type":"object"}}}})");
    EXPECT_EQ((*answer_form(*call))->digest, (*answer_form(*chat))->digest);
    EXPECT_EQ(ChatTemplate().render(call->request)->text.text,
              ChatTemplate().render(chat->request)->text.text);
  }
  EXPECT_EQ(messages(kUser, R"(,"output_config":{"format":null})"), "");
  EXPECT_EQ(messages(kUser, R"(,"output_config":{"format":3})"),
            "output_config.format: wanted an object, found a number");
  EXPECT_EQ(messages(kUser, R"(,"output_config":{"format":{"type":"nonsense"}})"),
            "output_config.format.type: wanted json_schema, found \"nonsense\"");
  EXPECT_EQ(messages(kUser, R"(,"output_format":{"type":"json_schema"})"),
            "output_format.schema: wanted a schema, found nothing");
  EXPECT_EQ(messages(kUser, R"(,"output_format":{"type":"json_schema","schema":{"type":5}})")
                .substr(0, 28),
            "output_format.schema.type: w");
  EXPECT_EQ(messages(kUser,
                     R"(,"output_format":)" + form + R"(,"output_config":{"format":)" + form + "}"),
            "output_format: wanted none beside output_config.format, found one");
  const auto loose = parse_messages_call(
      body + R"(,"output_config":{"format":{"type":"json_schema","schema":{"not":{}}}}})");
  ASSERT_TRUE(loose) << loose.error().message;
  EXPECT_EQ(answer_form(*loose).error().message.substr(0, 34),
            "output_config.format.schema.not: w");
}

std::string responses(const std::string& members) {
  const auto call = parse_responses_call("{" + members + "}");
  return call ? "" : call.error().message;
}

TEST(ResponsesCall, ARefusalNamesTheField) {
  EXPECT_EQ(responses(""), "input: wanted it or instructions, found neither");
  EXPECT_EQ(responses(R"("input":[])"), "input: wanted at least one message, found none");
  EXPECT_EQ(responses(R"("input":[{"role":"tool","content":"x"}])"),
            "input[0].role: wanted one of user, assistant, system, developer, found \"tool\"");
  EXPECT_EQ(responses(R"("input":[{"role":"user","content":[{"type":"text","text":"x"}]}])"),
            "input[0].content[0].type: wanted one of input_text, output_text, input_image, "
            "input_file, found \"text\"");
  EXPECT_EQ(responses(R"("input":[{"role":"user","content":"x"},{"type":"function_call_output",)"
                      R"("call_id":"a","output":"x"}])"),
            "input[1]: wanted a result right after the calls it answers, found \"a\" without such "
            "a call");
  EXPECT_EQ(responses(R"("input":"x","tools":[{"type":"function","name":"a::b"}])"), "");
  EXPECT_EQ(responses(R"("input":"x","tools":[{"type":"custom","name":"zz"}])"),
            "tools[0].name: wanted apply_patch, found \"zz\"");
  EXPECT_EQ(responses(R"("input":"x","text":{"format":{"type":"regex"}})"),
            "text.format.type: wanted one of text, json_schema, json_object, found \"regex\"");
  EXPECT_EQ(responses(R"("input":"x","reasoning":{"effort":"some"})").substr(0, 34),
            "reasoning.effort: wanted one of no");
  EXPECT_EQ(responses(R"("input":"x","max_output_tokens":400000)"),
            "max_output_tokens: wanted an integer from 1 to 393216, found 400000");
}

TEST(ResponsesCall, WhatFollowsOneAnotherIsOneTurn) {
  const std::string reasoning = R"({"type":"reasoning","content":[{"text":"r"}]},)";
  const std::string said = R"({"role":"assistant","content":"a"},)";
  const std::string call = R"({"type":"function_call","call_id":"1","name":"f","arguments":"{}"},)";
  const std::string result = R"({"type":"function_call_output","call_id":"1","output":"x"})";
  const auto turns = [&](const std::string& items) {
    const auto parsed = parse_responses_call("{\"input\":[" + items + result + "]}");
    EXPECT_TRUE(parsed) << parsed.error().message;
    std::string shown;
    for (const ChatMessage& message : parsed->chat.request.messages) {
      if (message.role != Role::kAssistant) continue;
      shown += "[" + message.reasoning + "|" + content_text(message) + "|" +
               std::to_string(message.tool_calls.size()) + "]";
    }
    return shown;
  };
  EXPECT_EQ(turns(reasoning + reasoning + said + said + call), "[r\nr|a\n\na|1]");
  EXPECT_EQ(turns(said + reasoning + call), "[|a|0][r||1]");
  EXPECT_EQ(turns(R"({"type":"reasoning"},{"type":"web_search_call"},)" + call), "[||1]");
  EXPECT_EQ(responses("\"input\":[" + call + call + result + "]"),
            "input[1].call_id: wanted each id once, found \"1\" again");
}

TEST(ResponsesCall, RepeatsTheRequest) {
  const auto call = parse_responses_call(
      R"({"input":"x","instructions":"i","max_output_tokens":5,"temperature":0.5,"user":"u",)"
      R"("reasoning":{"effort":"xhigh","summary":"auto"},"store":true,"tool_choice":"none",)"
      R"("tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]})");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(call->echo.at("instructions"), "i");
  EXPECT_EQ(call->echo.at("max_output_tokens"), 5);
  EXPECT_EQ(call->echo.at("temperature"), 0.5);
  EXPECT_EQ(call->echo.at("store"), false);
  EXPECT_EQ(call->echo.at("tool_choice"), "none");
  EXPECT_EQ(boost::json::serialize(call->echo.at("reasoning")),
            R"({"effort":"xhigh","summary":"auto"})");
  EXPECT_EQ(call->namespaces.at("n::f"), std::pair(std::string("n"), std::string("f")));
}

}  // namespace
}  // namespace fathom
