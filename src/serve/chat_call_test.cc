// Goal: what is in force after conversion, and what is refused, is as with the published library.
// Method: the Chat Completions cases of tests/golden/chat/requests.jsonl; limits by hand.
#include "serve/chat_call.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>

namespace fathom {
namespace {

namespace json = boost::json;

TEST(ChatCall, TheLibrarysCases) {
  std::ifstream file(std::string(FATHOM_SOURCE_DIR) + "/tests/golden/chat/requests.jsonl");
  int n_accepted = 0;
  int n_refused = 0;
  for (std::string line; std::getline(file, line);) {
    const json::value want = json::parse(line);
    if (want.at("api").as_string() != "chat") continue;
    SCOPED_TRACE(std::string(want.at("name").as_string()));
    const auto call = parse_chat_call(json::serialize(want.at("request")));
    if (want.as_object().contains("error_status")) {
      EXPECT_FALSE(call);
      ++n_refused;
      continue;
    }
    ++n_accepted;
    ASSERT_TRUE(call) << call.error().message;
    EXPECT_EQ(call->request.thinking, want.at("thinking").as_bool());
    EXPECT_EQ(call->sampling.temperature, want.at("temperature").to_number<double>());
    EXPECT_EQ(call->sampling.top_p, want.at("top_p").to_number<double>());
    EXPECT_EQ(call->max_tokens.has_value(), !want.at("max_tokens").is_null());
    EXPECT_EQ(json::value_from(call->request.stop), want.at("stop"));
  }
  EXPECT_EQ(n_accepted, 6);
  EXPECT_EQ(n_refused, 10);
}

std::string refusal(const std::string& members) {
  const auto call =
      parse_chat_call(R"({"messages":[{"role":"user","content":"x"}],)" + members + "}");
  return call ? "" : call.error().message;
}

TEST(ChatCall, ARefusalNamesTheField) {
  EXPECT_EQ(refusal(R"("temperature":"hot")"),
            "temperature: wanted a number from 0 to 2, found a string");
  EXPECT_EQ(refusal(R"("temperature":-0.5)"),
            "temperature: wanted a number from 0 to 2, found -0.5");
  EXPECT_EQ(refusal(R"("max_tokens":400000)"),
            "max_tokens: wanted an integer from 1 to 393216, found 400000");
  EXPECT_EQ(refusal(R"("max_tokens":1.5)"),
            "max_tokens: wanted an integer from 1 to 393216, found 1.5");
  EXPECT_EQ(refusal(R"("stream":1)"), "stream: wanted true or false, found a number");
  EXPECT_EQ(refusal(R"("stream_options":3)"), "stream_options: wanted an object, found a number");
  EXPECT_EQ(refusal(R"("restore":"some")"), "restore: wanted exact or bounded, found \"some\"");
  EXPECT_EQ(refusal(R"("seed":null,"restore":"exact")"), "");
  EXPECT_EQ(parse_chat_call("[]").error().message, "body: wanted an object, found an array");
}

TEST(ChatCall, TokensOfAnAnswer) {
  ChatCall call;
  call.request.thinking = false;
  EXPECT_EQ(*answer_tokens(call, 100, 1'000'000), 8192);
  EXPECT_EQ(*answer_tokens(call, 100, 4096), 3996);
  call.request.thinking = true;
  EXPECT_EQ(*answer_tokens(call, 100, 1'000'000), 65'536);
  call.request.effort = 100;
  EXPECT_EQ(*answer_tokens(call, 100, 1'000'000), 131'072);
  call.max_tokens = 3996;
  EXPECT_EQ(*answer_tokens(call, 100, 4096), 3996);
  call.max_tokens = 3997;
  EXPECT_EQ(answer_tokens(call, 100, 4096).error().message,
            "max_tokens: wanted at most 3996 beside a prompt of 100 tokens in a context of 4096, "
            "found 3997");
  EXPECT_EQ(answer_tokens(call, 4096, 4096).error().message,
            "messages: wanted a prompt of at most 4095 tokens, found 4096");
}

}  // namespace
}  // namespace fathom
