// Goal: chat over HTTP with the shipped model: whole and streamed answers agree, each wrong request
// gets its status and one line, clients that go away disturb nobody, a drain finishes what is
// live. Method: a server in this process, raw clients over loopback.
#include "serve/server.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <thread>

#include "served.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr char kChat[] = "/v1/chat/completions";

class ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    served_ = std::make_unique<Served>(ServerOptions{
        .body_bytes_max = 100'000, .read_ms = 1000, .version = "0", .build = {{"commit", "abc"}}});
    server_ = &served_->server();
  }

  void TearDown() override { served_->stop(); }

  static std::string call(const std::string& more) {
    return R"({"model":"fathom-34m","messages":[{"role":"user","content":"Write a loop."}],)"
           R"("thinking":{"type":"disabled"},"temperature":0.7,"seed":5,"max_tokens":12)" +
           more + "}";
  }

  std::optional<ClientReply> chat(const std::string& body) {
    HttpClient client(server_->port());
    return client.post(kChat, body);
  }

  void expect_refused(const std::string& body, int status, const std::string& message) {
    const auto reply = chat(body);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, status);
    const json::value parsed = json::parse(reply->body);
    EXPECT_EQ(parsed.at("error").at("message").as_string(), message);
  }

  std::unique_ptr<Served> served_;
  Server* server_ = nullptr;
};

// The JSON of each event; the last one is checked here.
std::vector<json::value> events_of(const std::string& body) {
  std::vector<json::value> events;
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = body.find("\n\n", at);
    const std::string line = body.substr(at, end - at);
    at = end + 2;
    if (line == "data: [DONE]") break;
    if (line.rfind("data: ", 0) == 0) events.push_back(json::parse(line.substr(6)));
  }
  EXPECT_EQ(at, body.size());
  return events;
}

TEST_F(ServerTest, AnAnswerIsTheSameWholeAndStreamedAndAfterAHit) {
  const auto whole = chat(call(""));
  ASSERT_TRUE(whole);
  ASSERT_EQ(whole->status, 200) << whole->body;
  const json::value body = json::parse(whole->body);
  EXPECT_EQ(body.at("object").as_string(), "chat.completion");
  EXPECT_EQ(body.at("model").as_string(), "fathom-34m");
  const json::value& choice = body.at("choices").at(0);
  const std::string content(choice.at("message").at("content").as_string());
  EXPECT_EQ(body.at("usage").at("prompt_cache_hit_tokens").as_int64(), 0);
  const int64_t n_prompt = body.at("usage").at("prompt_tokens").as_int64();

  const auto streamed = chat(call(R"(,"stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_TRUE(streamed);
  EXPECT_EQ(streamed->headers.at("content-type"), "text/event-stream");
  const std::vector<json::value> events = events_of(streamed->body);
  ASSERT_GE(events.size(), 2U);
  EXPECT_EQ(events[0].at("choices").at(0).at("delta").at("role").as_string(), "assistant");
  std::string joined;
  for (const json::value& event : events) {
    joined += event.at("choices").at(0).at("delta").at("content").as_string();
  }
  EXPECT_EQ(joined, content);
  const json::value& last = events.back();
  EXPECT_EQ(last.at("choices").at(0).at("finish_reason"), choice.at("finish_reason"));
  const json::value& usage = last.at("usage");
  EXPECT_EQ(usage.at("completion_tokens"), body.at("usage").at("completion_tokens"));
  EXPECT_EQ(usage.at("prompt_cache_hit_tokens").as_int64(), (n_prompt - 1) / 64 * 64);
}

TEST_F(ServerTest, NeighboursDoNotShow) {
  const json::value alone = json::parse(chat(call(""))->body);
  std::vector<std::thread> clients;
  std::vector<std::string> bodies(4);
  for (size_t i = 0; i < bodies.size(); ++i) {
    clients.emplace_back([&, i] { bodies[i] = chat(call(""))->body; });
  }
  for (std::thread& client : clients) client.join();
  for (const std::string& body : bodies) {
    EXPECT_EQ(json::parse(body).at("choices"), alone.at("choices"));
  }
}

TEST_F(ServerTest, PlainRoutes) {
  HttpClient client(server_->port());  // all over one connection
  EXPECT_EQ(client.get("/health")->body, R"({"status":"ok"})");
  EXPECT_EQ(client.get("/ready")->status, 200);
  const json::value models = json::parse(client.get("/v1/models")->body);
  EXPECT_EQ(models.at("data").at(0).at("id").as_string(), "fathom-34m");
  EXPECT_EQ(client.get("/nowhere")->status, 404);
  EXPECT_EQ(json::parse(client.get("/version")->body).at("version").as_string(), "0");
  EXPECT_EQ(json::parse(client.get("/version")->body).at("commit").as_string(), "abc");
  const auto wrong = client.get(kChat);
  EXPECT_EQ(wrong->status, 405);
  EXPECT_EQ(wrong->headers.at("allow"), "POST");
  EXPECT_EQ(client.post("/health", "{}")->status, 405);
}

TEST_F(ServerTest, WhatIsWrongIsRefusedByName) {
  const auto malformed = chat("{\"messages\": [");
  ASSERT_TRUE(malformed);
  EXPECT_EQ(malformed->status, 400);
  EXPECT_NE(malformed->body.find("body: "), std::string::npos);
  expect_refused(call(R"(,"n":2)"), 400,
                 "n: wanted 1 (more choices are a matter of Completions), found 2");
  expect_refused(call(R"(,"top_p":3)"), 400, "top_p: wanted a number from 0 to 1, found 3");
  expect_refused(R"({"model":"gpt","messages":[{"role":"user","content":"x"}]})", 404,
                 "model: wanted fathom-34m, found \"gpt\"");
  std::string long_text;
  for (int i = 0; i < 600; ++i) long_text += " word" + std::to_string(i);
  const auto too_long = chat(R"({"messages":[{"role":"user","content":")" + long_text + R"("}]})");
  ASSERT_TRUE(too_long);
  EXPECT_EQ(too_long->status, 400);
  EXPECT_NE(too_long->body.find("wanted a prompt of at most 511 tokens, found "),
            std::string::npos);
  EXPECT_EQ(chat(std::string(100'001, ' '))->status, 413);
  HttpClient client(server_->port());
  client.send("GET /health HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n");
  EXPECT_EQ(client.read_reply()->status, 431);
  HttpClient slow(server_->port());
  slow.send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 9\r\n\r\n{");
  EXPECT_EQ(slow.read_reply()->status, 408);
  EXPECT_EQ(json::parse(chat(call(""))->body).at("object").as_string(), "chat.completion");
}

// Bounded so that every answer ends within its tokens.
const char kFormed[] =
    R"(,"max_tokens":300,"response_format":{"type":"json_schema","json_schema":{"name":"f",)"
    R"("schema":{"type":"object","properties":{"kind":{"enum":["for","while"]},)"
    R"("n":{"type":"integer","minimum":0,"maximum":999},"ok":{"type":"boolean"}},)"
    R"("required":["kind","n","ok"]}}})";

std::string hot(const std::string& more) {  // the call of ServerTest at temperature 1
  return R"({"messages":[{"role":"user","content":"Write a json loop."}],)"
         R"("thinking":{"type":"disabled"},"temperature":1,"seed":8)" +
         more + "}";
}

TEST_F(ServerTest, AnAnswerHasItsSchemaAloneAndBesideNeighbours) {
  const json::value alone = json::parse(chat(hot(kFormed))->body);
  const json::value& choice = alone.at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason").as_string(), "stop");
  const json::value said = json::parse(choice.at("message").at("content").as_string());
  ASSERT_EQ(said.as_object().size(), 3U);
  EXPECT_TRUE(said.at("kind").as_string() == "for" || said.at("kind").as_string() == "while");
  EXPECT_GE(said.at("n").as_int64(), 0);
  EXPECT_LE(said.at("n").as_int64(), 999);
  EXPECT_TRUE(said.at("ok").is_bool());
  std::vector<std::thread> clients;
  std::vector<std::string> bodies(3);
  for (size_t i = 0; i < bodies.size(); ++i) {
    clients.emplace_back([&, i] { bodies[i] = chat(i == 1 ? call("") : hot(kFormed))->body; });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(json::parse(bodies[0]).at("choices"), alone.at("choices"));
  EXPECT_EQ(json::parse(bodies[2]).at("choices"), alone.at("choices"));
}

TEST_F(ServerTest, OtherFormsOfAnAnswer) {
  const auto content = [&](const std::string& form) {
    const auto reply = chat(hot(form));
    const json::value body = json::parse(reply->body);
    if (reply->status != 200) return reply->body;
    return std::string(body.at("choices").at(0).at("message").at("content").as_string());
  };
  const std::string object =
      content(R"(,"max_tokens":40,"response_format":{"type":"json_object"})");
  EXPECT_TRUE(object.starts_with("{")) << object;
  const std::string word =
      content(R"(,"max_tokens":40,"structured_outputs":{"regex":"(yes|no) [a-c]{3}"})");
  EXPECT_TRUE(word.starts_with("yes ") || word.starts_with("no ")) << word;
  EXPECT_LE(word.size(), 7U);
  const std::string list =
      content(R"(,"max_tokens":40,"structured_outputs":{"grammar":"root ::= \"<\" item{2} \">\"\n)"
              R"(item ::= [0-9] \";\""})");
  EXPECT_EQ(list.size(), 6U) << list;
  EXPECT_EQ(list.front(), '<');
  const std::string nothing = content(R"(,"structured_outputs":{"json":{"const":null}})");
  EXPECT_EQ(nothing, "null");
  // The model does not end its reasoning here, so nothing but reasoning was said.
  const auto thinking = chat(R"({"messages":[{"role":"user","content":"Hi"}],"max_tokens":20,)"
                             R"("structured_outputs":{"regex":"yes"}})");
  const json::value thought = json::parse(thinking->body);
  const json::value& said = thought.at("choices").at(0).at("message").at("content");
  EXPECT_TRUE(said.is_null() || said.as_string() == "" || said.as_string() == "yes")
      << thinking->body;
}

TEST_F(ServerTest, AFormThatCannotBeEnforcedIsRefusedWithItsPath) {
  expect_refused(
      call(R"(,"response_format":{"type":"json_schema","json_schema":{"name":"f","schema":)"
           R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}}}})"),
      400,
      "response_format.json_schema.schema.properties.a.uniqueItems: wanted false, since it cannot "
      "be enforced, found true");
  expect_refused(call(R"(,"structured_outputs":{"regex":"(a)\\1"})"), 400,
                 "structured_outputs.regex: byte 3: wanted no back reference, \\b, \\p or unknown "
                 "escape, found \"\\1\"");
  expect_refused(
      call(R"(,"structured_outputs":{"regex":"a","json":{}})"), 400,
      "structured_outputs: wanted an object with one of json, regex, choice and grammar, "
      "found 2 members");
  expect_refused(
      call(R"(,"structured_outputs":{"structural_tag":"a"})"), 400,
      "structured_outputs: wanted an object with one of json, regex, choice and grammar, "
      "found \"structural_tag\"");
}

std::string strict_tool(const std::string& properties) {
  return R"("tools":[{"type":"function","function":{"name":"find","strict":true,"parameters":)"
         R"({"type":"object","properties":{)" +
         properties + "}}}}]";
}

// At the hottest the API allows, where the model alone writes no call at all.
TEST_F(ServerTest, StrictToolsAreCalledAsTheirSchemasSay) {
  const std::string tools = strict_tool(R"("n":{"type":"integer","minimum":1,"maximum":9},)"
                                        R"("word":{"type":"string","maxLength":5})");
  int n_whole = 0;
  for (int seed = 0; seed < 4; ++seed) {
    const auto reply =
        chat(R"({"messages":[{"role":"user","content":"Go"}],"temperature":2,)"
             R"("thinking":{"type":"disabled"},"max_tokens":120,"tool_choice":)" +
             std::string(seed % 2 == 0 ? R"("required")"
                                       : R"({"type":"function","function":{"name":"find"}})") +
             R"(,"seed":)" + std::to_string(seed) + "," + tools + "}");
    ASSERT_EQ(reply->status, 200) << reply->body;
    const json::value body = json::parse(reply->body);
    const json::value& choice = body.at("choices").at(0);
    const json::array& calls = choice.at("message").at("tool_calls").as_array();
    const bool whole = choice.at("finish_reason").as_string() == "tool_calls";
    n_whole += whole ? 1 : 0;
    for (size_t i = 0; i + (whole ? 0 : 1) < calls.size(); ++i) {
      const json::value& function = calls[i].at("function");
      EXPECT_EQ(function.at("name").as_string(), "find");
      const json::value arguments = json::parse(function.at("arguments").as_string());
      ASSERT_EQ(arguments.as_object().size(), 2U) << reply->body;
      const int64_t n = arguments.at("n").as_int64();
      EXPECT_TRUE(n >= 1 && n <= 9) << n;
      EXPECT_TRUE(arguments.at("word").is_string());
    }
  }
  EXPECT_GE(n_whole, 2);
}

TEST_F(ServerTest, AStrictToolThatCannotBeEnforcedIsRefusedWithItsPath) {
  const std::string bad = strict_tool(R"("n":{"type":"integer","multipleOf":2})");
  const std::string wanted =
      "properties.n.multipleOf: wanted a keyword that can be enforced, found one that cannot";
  expect_refused(call("," + bad), 400, "tools[0].function.parameters." + wanted);
  EXPECT_EQ(chat(call(R"(,"tool_choice":"none",)" + bad))->status, 200);
  expect_refused(
      call(R"(,"structured_outputs":{"regex":"a"},)" + strict_tool(R"("n":{"type":"integer"})")),
      400, "structured_outputs: wanted none beside strict tools, found one");
  HttpClient client(server_->port());
  const auto reply = client.post(
      "/v1/responses",
      R"({"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f","strict":true,)"
      R"("parameters":{"type":"object","properties":{"n":{"type":"integer","multipleOf":2}}}}]})");
  EXPECT_EQ(reply->status, 400);
  EXPECT_EQ(json::parse(reply->body).at("error").at("message").as_string(),
            "tools[1].parameters." + wanted);
}

TEST_F(ServerTest, AStopTextEndsTheAnswer) {
  const json::value all = json::parse(chat(call(""))->body);
  const std::string content(all.at("choices").at(0).at("message").at("content").as_string());
  ASSERT_GT(content.size(), 6U);
  const std::string stop = content.substr(3, 2);
  const json::value cut =
      json::parse(chat(call(",\"stop\":" + json::serialize(json::value(stop))))->body);
  const json::value& choice = cut.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("content").as_string(), content.substr(0, content.find(stop)));
  EXPECT_EQ(choice.at("finish_reason").as_string(), "stop");
}

TEST_F(ServerTest, ClientsThatGoAwayAreCancelledAndDisturbNobody) {
  const json::value alone = json::parse(chat(call(""))->body);
  const std::string endless = long_call();
  // Refused where those that went away were not noticed yet; then answered as ever.
  for (int n_left = 0; n_left < 8;) {
    HttpClient client(server_->port());
    client.send(post_text(kChat, endless));
    ASSERT_TRUE(client.read_until("\r\n\r\n"));
    if (client.unread().starts_with("HTTP/1.1 429 ")) continue;
    ASSERT_TRUE(client.read_until("data: "));
    ++n_left;
  }
  std::optional<ClientReply> reply;
  while (!reply || reply->status == 429) reply = chat(call(""));
  EXPECT_EQ(json::parse(reply->body).at("choices"), alone.at("choices"));
}

TEST_F(ServerTest, AFullQueueRefusesWithATime) {
  const std::string endless = long_call();
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server_->port()));
    clients.back()->send(post_text(kChat, endless));
    ASSERT_TRUE(clients.back()->read_until("data: "));
  }
  const auto refused = chat(call(""));
  EXPECT_EQ(refused->status, 429);
  EXPECT_GE(std::stoi(refused->headers.at("retry-after")), 1);
}

TEST_F(ServerTest, ADrainFinishesWhatIsLive) {
  HttpClient client(server_->port());
  HttpClient idle(server_->port());
  EXPECT_EQ(idle.get("/health")->status, 200);
  client.send(post_text(kChat, call(R"(,"stream":true)")));
  ASSERT_TRUE(client.read_until("data: "));
  server_->stop();
  const auto reply = client.read_reply();
  ASSERT_TRUE(reply);
  EXPECT_NE(reply->body.find("data: [DONE]"), std::string::npos);
  served_->stop();
  EXPECT_FALSE(idle.get("/health"));
}

}  // namespace
}  // namespace fathom
