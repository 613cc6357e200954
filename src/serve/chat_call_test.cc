// Goal: refusals name their field; limits hold. What the published library takes is in
// golden_calls_test.cc.
#include "serve/chat_call.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

std::string refusal(const std::string& members) {
  const auto call =
      parse_chat_call(R"({"messages":[{"role":"user","content":"x"}],)" + members + "}");
  return call ? "" : call.error().message;
}

TEST(ChatCall, ARefusalNamesTheField) {
  EXPECT_EQ(refusal(R"("temperature":"hot")"),
            "temperature: wanted a number from 0 to 2, found a string");
  EXPECT_EQ(refusal(R"("top_p":0)"), "top_p: wanted a number above 0, to 1, found 0");
  EXPECT_EQ(refusal(R"("top_p":1e38)"), "top_p: wanted a number from 0 to 1, found 1e+38");
  EXPECT_EQ(refusal(R"("top_logprobs":3)"),
            "logprobs: wanted true beside top_logprobs, found nothing");
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
  call.other_max_tokens = 5;
  EXPECT_EQ(*answer_tokens(call, 100, 4096), 5);
  call.other_max_tokens = 5000;  // an addition, so that no call is refused for it
  EXPECT_EQ(*answer_tokens(call, 100, 4096), 3996);
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
