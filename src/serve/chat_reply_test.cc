// Goal: what a chat answer has beyond the published library's streams (golden_replies_test.cc).
#include "serve/chat_reply.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "text/json_output.h"

namespace fathom {
namespace {

namespace json = boost::json;

TEST(ChatReply, AWholeAnswerCarriesWhatFathomAdds) {
  const auto call = parse_chat_call(R"({"messages":[{"role":"user","content":"x"}]})");
  ChatReply reply({.id = "ID", .model = "m", .fingerprint = "fp"}, *call);
  reply.feed(0, {.text = "why", .n_tokens = 2});
  reply.feed(0, {.text = "</think>because", .n_tokens = 1});
  reply.finish(0, FinishReason::kLength,
               {.prompt_tokens = 9,
                .cached_tokens = 4,
                .completion_tokens = 3,
                .restore = "bounded",
                .replayed_tokens = 2});
  const json::value body = json::parse(reply.whole());
  const json::value& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("reasoning_content").as_string(), "why");
  EXPECT_EQ(choice.at("message").at("content").as_string(), "because");
  EXPECT_EQ(choice.at("finish_reason").as_string(), "length");
  EXPECT_EQ(json_output(body.at("fathom")),
            R"({"restore":"bounded","replayed_tokens":2,"effort":75})");
  EXPECT_EQ(body.at("usage").at("completion_tokens_details").at("reasoning_tokens").as_int64(), 2);
}

// The tokens of a list of {"token", ...}, joined by bars.
std::string tokens_of(const json::value& list) {
  std::string text;
  for (const json::value& token : list.as_array()) {
    text += std::string(token.at("token").as_string()) + "|";
  }
  return text;
}

TEST(ChatReply, LogProbabilitiesStandWithTheTextOfTheirTokens) {
  const auto call = parse_chat_call(
      R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,"top_logprobs":1,)"
      R"("stop":"S!"})");
  ChatReply reply({.id = "ID", .model = "m", .fingerprint = "fp"}, *call);
  ReplyEvents events;
  // What each token decides: a smiley of two tokens, a marker, dropped line feeds, a stop text.
  const std::vector<std::pair<std::string, std::string>> tokens = {
      {"ab", "ab"},         {"</think>", "</think>"},     {"\n\n", "\n\n"}, {"Hi", "Hi"},
      {"\xf0\x9f\x99", ""}, {"\x82", "\xf0\x9f\x99\x82"}, {" S", " S"},     {"!", "!"}};
  for (const auto& [bytes, text] : tokens) {
    const LoggedToken logged = {.bytes = bytes, .logprob = -0.5F, .top = {{"other", -1.0F}}};
    for (ReplyEvent& event : reply.feed(0, {.text = text, .n_tokens = 1, .logged = &logged})) {
      events.push_back(std::move(event));
    }
  }
  EXPECT_TRUE(reply.done(0));
  reply.finish(0, FinishReason::kStop, {.prompt_tokens = 1, .completion_tokens = 8});
  const json::value logprobs = json::parse(reply.whole()).at("choices").at(0).at("logprobs");
  EXPECT_EQ(tokens_of(logprobs.at("reasoning_content")), "ab|");
  EXPECT_EQ(tokens_of(logprobs.at("content")), "Hi|\\xf0\\x9f\\x99|\\x82| S|");
  std::string streamed;
  for (const ReplyEvent& event : events) {
    const json::value of = json::parse(event.data).at("choices").at(0).at("logprobs");
    if (of.is_object() && of.as_object().contains("content"))
      streamed += tokens_of(of.at("content"));
  }
  EXPECT_EQ(streamed, "Hi|\\xf0\\x9f\\x99|\\x82| S|");
  EXPECT_EQ(json_output(logprobs.at("reasoning_content").at(0)),
            R"({"token":"ab","logprob":-0.5,"bytes":[97,98],)"
            R"("top_logprobs":[{"token":"other","logprob":-1.0,"bytes":[111,116,104,101,114]}]})");
}

TEST(ErrorBody, IsOneObject) {
  EXPECT_EQ(error_body(400, "n: \"x\""),
            R"({"error":{"message":"n: \"x\"","type":"invalid_request_error","param":null,)"
            R"("code":"invalid_request_error"}})");
}

}  // namespace
}  // namespace fathom
