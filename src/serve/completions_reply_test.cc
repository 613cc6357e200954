// Goal: choices keep apart, stop texts end one alone, tokens stand with their text. Method: texts
// cut at every place; a body beside the chunks of a stream.
#include "serve/completions_reply.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "text/json_output.h"

namespace fathom {
namespace {

namespace json = boost::json;

CompletionsReply reply_to(const std::string& members, const std::string& echo = {}) {
  const auto call = parse_completions_call(R"({"prompt":"p")" + members + "}");
  EXPECT_TRUE(call) << call.error().message;
  return {{.id = "ID", .model = "m", .fingerprint = "fp"}, *call, echo};
}

struct Streamed {
  std::map<int64_t, std::string> texts;
  std::map<int64_t, std::string> reasons;
  std::map<int64_t, std::string> tokens;  // joined by bars
  json::value usage;
};

void add(const ReplyEvents& events, Streamed* streamed) {
  for (const ReplyEvent& event : events) {
    const json::value body = json::parse(event.data);
    EXPECT_TRUE(streamed->usage.is_null());
    streamed->usage = body.as_object().contains("usage") ? body.at("usage") : nullptr;
    for (const json::value& choice : body.at("choices").as_array()) {
      const int64_t index = choice.at("index").as_int64();
      streamed->texts[index] += choice.at("text").as_string();
      if (choice.at("finish_reason").is_string()) {
        streamed->reasons[index] += choice.at("finish_reason").as_string();
      }
      if (choice.at("logprobs").is_null()) continue;
      for (const json::value& token : choice.at("logprobs").at("tokens").as_array()) {
        streamed->tokens[index] += std::string(token.as_string()) + "|";
      }
    }
  }
}

TEST(CompletionsReply, CutsDoNotShow) {
  const std::string texts[] = {"one STOP two", "\n\n</think> ST"};
  for (size_t cut = 0; cut <= 12; ++cut) {
    CompletionsReply reply = reply_to(
        R"(,"n":2,"stop":"STOP","stream":true,"stream_options":{"include_usage":true})", "p");
    Streamed streamed;
    add(reply.open(), &streamed);
    for (const bool second : {false, true}) {
      for (int64_t i = 0; i < 2; ++i) {
        const std::string& text = texts[static_cast<size_t>(i)];
        if (reply.done(i)) continue;
        const std::string part = second ? text.substr(cut) : text.substr(0, cut);
        add(reply.feed(i, {.text = part}), &streamed);
      }
    }
    EXPECT_TRUE(reply.done(0));
    EXPECT_FALSE(reply.done(1));
    add(reply.finish(1, FinishReason::kLength, {.prompt_tokens = 1, .completion_tokens = 5}),
        &streamed);
    add(reply.finish(0, FinishReason::kStop, {.prompt_tokens = 1, .completion_tokens = 9}),
        &streamed);
    EXPECT_EQ(streamed.texts.at(0), "pone ");
    EXPECT_EQ(streamed.texts.at(1), "p\n\n</think> ST");
    EXPECT_EQ(streamed.reasons.at(0), "stop");
    EXPECT_EQ(streamed.reasons.at(1), "length");
    EXPECT_EQ(streamed.usage.at("completion_tokens").as_int64(), 9);
    const json::value body = json::parse(reply.whole());
    for (int64_t i = 0; i < 2; ++i) {
      const json::value& choice = body.at("choices").at(static_cast<size_t>(i));
      EXPECT_EQ(choice.at("text").as_string(), streamed.texts.at(i));
      EXPECT_EQ(choice.at("finish_reason").as_string(), streamed.reasons.at(i));
    }
  }
}

TEST(CompletionsReply, TokensStandWithTheirTextAndAStopTextHasNone) {
  CompletionsReply reply = reply_to(R"(,"logprobs":1,"stop":"S!")");
  Streamed streamed;
  const std::vector<std::pair<std::string, std::string>> tokens = {
      {"é", "é"}, {"\xf0\x9f\x99", ""}, {"\x82", "\xf0\x9f\x99\x82"},
      {"x", "x"}, {"S", "S"},           {"!", "!"}};
  for (const auto& [bytes, text] : tokens) {
    const LoggedToken logged = {.bytes = bytes, .logprob = -0.5F, .top = {{"y", -1.0F}}};
    add(reply.feed(0, {.text = text, .n_tokens = 1, .logged = &logged}), &streamed);
  }
  add(reply.finish(0, FinishReason::kStop, {.completion_tokens = 6}), &streamed);
  EXPECT_EQ(streamed.tokens.at(0), "é|\\xf0\\x9f\\x99|\\x82|x|");
  const json::value body = json::parse(reply.whole());
  const json::value& logged = body.at("choices").at(0).at("logprobs");
  EXPECT_EQ(json_output(logged.at("text_offset")), "[0,1,2,2]");
  EXPECT_EQ(json_output(logged.at("top_logprobs").at(3)), R"({"y":-1.0})");
}

TEST(CompletionsReply, APromptIsLoggedInBothForms) {
  CompletionsReply reply =
      reply_to(R"(,"echo":true,"logprobs":1,"prompt_logprobs":2,"n":2)", "aéb");
  const RankedToken x = {.id = 7, .bytes = "x", .logprob = -0.25F, .rank = 1};
  const RankedToken y = {.id = 8, .bytes = "\xc3", .logprob = -1.5F, .rank = 2};
  const RankedToken b = {.id = 9,
                         .bytes =
                             "\xa9"
                             "b",
                         .logprob = -4,
                         .rank = 5};
  reply.prompt({{.said = {.id = 0, .bytes = "<bos>"}, .top = {}},
                {.said = {.id = 3, .bytes = "a", .logprob = -2, .rank = 3}, .top = {x, y}},
                {.said = y, .top = {x, y}},
                {.said = b, .top = {x, y}}});
  const LoggedToken logged = {.bytes = "!", .logprob = -0.5F, .top = {}};
  for (int64_t i = 0; i < 2; ++i) {
    reply.feed(i, {.text = "!", .n_tokens = 1, .logged = &logged});
    reply.finish(i, FinishReason::kLength, {.prompt_tokens = 4, .completion_tokens = 2});
  }
  const json::value body = json::parse(reply.whole());
  for (const json::value& choice : body.at("choices").as_array()) {
    EXPECT_EQ(choice.at("text").as_string(), "aéb!");
    EXPECT_EQ(json_output(choice.at("logprobs")),
              R"({"tokens":["<bos>","a","\\xc3","\\xa9\\x62","!"],)"
              R"("token_logprobs":[null,-2.0,-1.5,-4.0,-0.5],)"
              R"("top_logprobs":[null,{"x":-0.25},{"x":-0.25},{"x":-0.25},{}],)"
              R"("text_offset":[0,0,1,2,3]})");
    EXPECT_EQ(json_output(choice.at("prompt_logprobs").at(0)), "null");
    EXPECT_EQ(json_output(choice.at("prompt_logprobs").at(2)),
              R"({"8":{"logprob":-1.5,"rank":2,"decoded_token":"\\xc3"},)"
              R"("7":{"logprob":-0.25,"rank":1,"decoded_token":"x"}})");
    EXPECT_EQ(choice.at("prompt_logprobs").at(3).as_object().size(), 3U);
  }
}

std::string refusal(const std::string& members) {
  const auto call = parse_completions_call("{" + members + "}");
  return call ? "" : call.error().message;
}

TEST(CompletionsCall, ARefusalNamesTheField) {
  EXPECT_EQ(refusal(""), "prompt: wanted a string or an array of token ids, found nothing");
  EXPECT_EQ(refusal(R"("prompt":["a","b"])"), "prompt: wanted one prompt, found 2");
  EXPECT_EQ(refusal(R"("prompt":[])"), "prompt: wanted at least one token id, found none");
  EXPECT_EQ(refusal(R"("prompt":[1,-2])"), "prompt[1]: wanted a token id, found -2");
  EXPECT_EQ(refusal(R"("prompt":["a"])"), "");
  EXPECT_EQ(refusal(R"("prompt":[[1,2]])"), "");
  EXPECT_EQ(refusal(R"("prompt":"a","n":2,"best_of":3)"),
            "best_of: wanted an integer from 2 to 2, found 3");
  EXPECT_EQ(refusal(R"("prompt":"a","echo":true,"logprobs":1,"stream":true)"),
            "stream: wanted false beside echo and logprobs, found true");
  EXPECT_EQ(refusal(R"("prompt":"a","prompt_logprobs":0,"stream":true)"),
            "stream: wanted false beside prompt_logprobs, found true");
  EXPECT_EQ(refusal(R"("prompt":"a","prompt_logprobs":21)"),
            "prompt_logprobs: wanted an integer from 0 to 20, found 21");
  EXPECT_EQ(refusal(R"("prompt":"a","suffix":"b","max_tokens":5000)"),
            "max_tokens: wanted an integer from 0 to 4096, found 5000");
  EXPECT_EQ(refusal(R"("prompt":"a","logit_bias":{"1":5})"),
            "logit_bias: wanted nothing, for this route has no such member, found an object");
  EXPECT_EQ(refusal(R"("prompt":"a","logit_bias":{})"), "");
  EXPECT_EQ(refusal(R"("prompt":"a","stop":")" + std::string(1024, 'x') + "\""), "");
  EXPECT_EQ(refusal(R"("prompt":"a","stop":")" + std::string(1025, 'x') + "\""),
            "stop: wanted strings of at most 1024 bytes, found 1025");
  EXPECT_EQ(refusal(R"("prompt":"a","stop":[""])"),
            "stop: wanted strings that are not empty, found \"\"");
}

}  // namespace
}  // namespace fathom
