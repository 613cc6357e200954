// Goal: what a call asks for beyond its protocol holds on every route of the model, with the model.
// Method: a server in this process with the shipped model, raw clients over loopback.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>

#include "served.h"

namespace fathom {
namespace {

namespace json = boost::json;

class MembersTest : public testing::Test {
 protected:
  json::value ask(const std::string& path, const std::string& body, int status = 200) {
    HttpClient client(served_.port());
    const auto reply = client.post(path, body);
    EXPECT_TRUE(reply);
    if (!reply) return {};
    EXPECT_EQ(reply->status, status) << reply->body;
    return json::parse(reply->body);
  }

  // The text of an answer without reasoning to the same question.
  std::string said(const std::string& path, const std::string& members) {
    const json::value body = ask(path, body_of(path, members));
    if (path == "/v1/completions") return text(body.at("choices").at(0).at("text"));
    if (path == "/v1/chat/completions") {
      return text(body.at("choices").at(0).at("message").at("content"));
    }
    const bool messages = path == "/v1/messages";
    const json::array& parts = body.at(messages ? "content" : "output").as_array();
    if (parts.empty()) return "";
    return text(messages ? parts.at(0).at("text") : parts.at(0).at("content").at(0).at("text"));
  }

  static std::string body_of(const std::string& path, const std::string& members) {
    if (path == "/v1/completions") return R"({"prompt":"What is a river?",)" + members + "}";
    if (path == "/v1/responses") {
      return R"({"input":"What is a river?","reasoning":{"effort":"none"},)" + members + "}";
    }
    return R"({"messages":[{"role":"user","content":"What is a river?"}],)"
           R"("thinking":{"type":"disabled"},)" +
           members + "}";
  }

  static std::string text(const json::value& value) {
    return value.is_string() ? std::string(value.as_string()) : "";
  }

  static int64_t answered(const json::value& body) {
    const json::object& usage = body.at("usage").as_object();
    return usage.at(usage.contains("output_tokens") ? "output_tokens" : "completion_tokens")
        .as_int64();
  }

  Served served_{{.body_bytes_max = 200'000, .version = "0"}};
};

constexpr const char* kRoutes[] = {"/v1/chat/completions", "/v1/messages", "/v1/responses",
                                   "/v1/completions"};

TEST_F(MembersTest, AFormBindsTheAnswerOnEveryRoute) {
  for (const char* path : kRoutes) {
    SCOPED_TRACE(path);
    for (const char* form : {R"({"regex":"yes|no"})", R"({"choice":["yes","no"]})"}) {
      const std::string answer =
          said(path, R"("max_tokens":20,"structured_outputs":)" + std::string(form));
      EXPECT_TRUE(answer == "yes" || answer == "no") << answer;
    }
    const json::value refused =
        ask(path, body_of(path, R"("structured_outputs":{"regex":"(yes|no"})"), 400);
    EXPECT_TRUE(
        text(refused.at("error").at("message")).starts_with("structured_outputs.regex: byte "));
  }
  const std::string schema = R"({"type":"object","properties":{"a":{"enum":["x","y"]}},)"
                             R"("required":["a"],"additionalProperties":false})";
  const std::string format = R"({"type":"json_schema","schema":)" + schema + "}";
  for (const std::string& body :
       {said("/v1/messages", R"("max_tokens":60,"output_config":{"format":)" + format + "}"),
        said("/v1/messages", R"("max_tokens":60,"output_format":)" + format),
        said("/v1/completions",
             R"("max_tokens":60,"response_format":{"type":"json_schema","json_schema":{"schema":)" +
                 schema + "}}")}) {
    const json::value object = json::parse(body);
    EXPECT_EQ(object.as_object().size(), 1U) << body;
    EXPECT_TRUE(object.at("a") == "x" || object.at("a") == "y") << body;
  }
  ask("/v1/messages", body_of("/v1/messages", R"("output_config":{"format":{"type":"x"}})"), 400);
}

TEST_F(MembersTest, TheMostLikelyTokenAloneIsTheSameWhateverTheSeed) {
  for (const char* path : {"/v1/chat/completions", "/v1/responses", "/v1/completions"}) {
    SCOPED_TRACE(path);
    const std::string warm = R"("max_tokens":12,"temperature":1.9,)";
    const std::string want = said(path, R"("max_tokens":12,"temperature":0)");
    EXPECT_NE(want, "");
    EXPECT_EQ(said(path, warm + R"("seed":1,"top_k":1)"), want);
    EXPECT_EQ(said(path, warm + R"("seed":2,"min_p":1)"), want);
    EXPECT_NE(said(path, R"("max_tokens":12,"temperature":0,"repetition_penalty":5)"), want);
  }
}

TEST_F(MembersTest, LimitsUnderEachNameAndAnswersThatGoOn) {
  for (const char* path : kRoutes) {
    SCOPED_TRACE(path);
    for (const char* name : {"max_tokens", "max_completion_tokens", "max_output_tokens"}) {
      const std::string limit = "\"" + std::string(name) + "\":3";
      EXPECT_LE(answered(ask(path, body_of(path, limit))), 3) << name;
    }
    const json::value on =
        ask(path, body_of(path, R"("max_output_tokens":200,"ignore_eos":true,"temperature":0)"));
    EXPECT_EQ(answered(on), 200);
  }
}

TEST_F(MembersTest, ACallThatMustComeNamesAToolThatWasOffered) {
  const std::string tools =
      R"("tools":[{"name":"w","description":"d","input_schema":{"type":"object","properties":)"
      R"({"a":{"type":"string","maxLength":5}},"required":["a"],"additionalProperties":false})";
  int n_whole = 0;
  for (int seed = 0; seed < 6; ++seed) {
    const bool strict = seed % 2 == 0;
    const std::string choice = seed < 3 ? R"({"type":"tool","name":"w"})" : R"({"type":"any"})";
    const json::value body = ask(
        "/v1/messages", body_of("/v1/messages", R"("max_tokens":120,"temperature":1.5,"seed":)" +
                                                    std::to_string(seed) + "," + tools +
                                                    (strict ? R"(,"strict":true}])" : "}]") +
                                                    R"(,"tool_choice":)" + choice));
    const bool whole = body.at("stop_reason").as_string() == "tool_use";
    n_whole += whole ? 1 : 0;
    ASSERT_FALSE(body.at("content").as_array().empty());
    for (const json::value& block : body.at("content").as_array()) {
      EXPECT_EQ(block.at("type").as_string(), "tool_use");
      EXPECT_EQ(block.at("name").as_string(), "w");
      if (!strict || !whole) continue;
      EXPECT_EQ(block.at("input").as_object().size(), 1U);
      EXPECT_TRUE(block.at("input").at("a").is_string());
    }
  }
  EXPECT_GE(n_whole, 3);
  const json::value refused =
      ask("/v1/messages",
          body_of("/v1/messages", R"("tools":[{"name":"w","strict":true,"input_schema":)"
                                  R"({"type":"object","not":{}}}])"),
          400);
  EXPECT_TRUE(text(refused.at("error").at("message")).starts_with("tools[0].input_schema.not: "));
}

TEST_F(MembersTest, TheAnswerNamesWhatWasPassedOver) {
  const json::value body =
      ask("/v1/responses",
          body_of("/v1/responses", R"("max_output_tokens":2,"previous_response_id":"resp_1")"));
  EXPECT_EQ(body.at("fathom").at("passed_over"), json::array{"previous_response_id"});
  EXPECT_FALSE(ask("/v1/responses", body_of("/v1/responses", R"("max_output_tokens":2)"))
                   .at("fathom")
                   .as_object()
                   .contains("passed_over"));
}

TEST_F(MembersTest, APromptIsScoredWithoutAnAnswer) {
  const json::value body =
      ask("/v1/completions", body_of("/v1/completions", R"("max_tokens":0,"echo":true,)"
                                                        R"("logprobs":1)"));
  const json::value& choice = body.at("choices").at(0);
  EXPECT_EQ(text(choice.at("text")), "What is a river?");
  EXPECT_EQ(answered(body), 0);
  EXPECT_EQ(text(choice.at("finish_reason")), "length");
  const int64_t n_prompt = body.at("usage").at("prompt_tokens").as_int64();
  EXPECT_EQ(static_cast<int64_t>(choice.at("logprobs").at("tokens").as_array().size()), n_prompt);
  const json::value more =
      ask("/v1/completions", body_of("/v1/completions", R"("max_tokens":1,"echo":true,)"
                                                        R"("logprobs":1,"temperature":0)"));
  json::array values = more.at("choices").at(0).at("logprobs").at("token_logprobs").as_array();
  values.resize(static_cast<size_t>(n_prompt));
  EXPECT_EQ(choice.at("logprobs").at("token_logprobs").as_array(), values);
}

TEST_F(MembersTest, TokensOfMessagesWithoutTheModelsHeader) {
  const auto tokens = [&](const std::string& more) {
    return ask("/tokenize", R"({"messages":[{"role":"user","content":"x"}])" + more + "}")
        .at("tokens")
        .as_array();
  };
  const json::array with = tokens(R"(,"add_generation_prompt":true)");
  const json::array without = tokens(R"(,"add_generation_prompt":false)");
  ASSERT_EQ(without.size() + 2, with.size());  // the header and the opening of the reasoning
  EXPECT_TRUE(std::equal(without.begin(), without.end(), with.begin()));
}

TEST_F(MembersTest, ModelsAreListedForClientsOfBothProtocols) {
  for (const char* path : {"/v1/models", "/anthropic/v1/models"}) {
    HttpClient client(served_.port());
    const json::value list = json::parse(client.get(path)->body);
    const json::value& model = list.at("data").at(0);
    EXPECT_EQ(list.at("object"), "list");
    EXPECT_EQ(list.at("has_more"), false);
    EXPECT_EQ(list.at("first_id"), model.at("id"));
    EXPECT_EQ(model.at("object"), "model");
    EXPECT_EQ(model.at("type"), "model");
    EXPECT_EQ(model.at("display_name"), model.at("id"));
    const std::string created = text(model.at("created_at"));
    EXPECT_EQ(created.size(), 20U);
    EXPECT_TRUE(created.starts_with("20") && created.ends_with("Z")) << created;
    EXPECT_EQ(client.get(path + ("/" + text(model.at("id"))))->status, 200);
  }
}

}  // namespace
}  // namespace fathom
