// Goal: every protocol says what Chat Completions says for the same prompt and seed, streamed or
// not, and refuses in its own form. Method: a server in this process with the shipped model, raw
// clients over loopback.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <thread>

#include "served.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr int64_t kContext = 512;

class ProtocolsTest : public testing::Test {
 protected:
  ClientReply post(const std::string& path, const std::string& body) {
    HttpClient client(served_.port());
    const auto reply = client.post(path, body);
    EXPECT_TRUE(reply);
    return reply.value_or(ClientReply{});
  }

  json::value ask(const std::string& path, const std::string& body) {
    const ClientReply reply = post(path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return json::parse(reply.body);
  }

  void expect_refused(const std::string& path, const std::string& body, int status,
                      const std::string& message) {
    const ClientReply reply = post(path, body);
    EXPECT_EQ(reply.status, status) << reply.body;
    const json::value parsed = json::parse(reply.body);
    EXPECT_EQ(parsed.at("error").at("message").as_string(), message);
    EXPECT_EQ(parsed.as_object().contains("type"), path.starts_with("/v1/messages"));
  }

  Served served_{{.body_bytes_max = 100'000, .version = "0"}};
};

constexpr char kQuestion[] = "Write a loop that adds the numbers from 1 to 10.";
constexpr char kSampling[] = R"("temperature":0.7,"seed":5)";

std::string body_of(const std::string& members, const std::string& more) {
  return "{\"model\":\"fathom-34m\"," + members + "," + kSampling + more + "}";
}

std::string messages_member() {
  return std::string(R"("messages":[{"role":"user","content":")") + kQuestion + "\"}]";
}

std::string chat_body(bool thinking, const std::string& more) {
  const std::string mode = thinking ? "enabled" : "disabled";
  return body_of(messages_member() + R"(,"thinking":{"type":")" + mode + "\"}", more);
}

std::string responses_body(bool thinking, const std::string& more) {
  const std::string effort = thinking ? "high" : "none";
  return body_of(
      std::string(R"("input":")") + kQuestion + R"(","reasoning":{"effort":")" + effort + "\"}",
      more);
}

struct Event {
  std::string name;
  json::value data;
};

// A last line [DONE] is left out and counted.
std::vector<Event> events_of(const std::string& body, int* n_done) {
  std::vector<Event> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    std::string block = body.substr(at, end - at);
    at = end + 2;
    Event event;
    if (block.starts_with("event: ")) {
      event.name = block.substr(7, block.find('\n') - 7);
      block.erase(0, block.find('\n') + 1);
    }
    if (block == "data: [DONE]") {
      ++*n_done;
      continue;
    }
    if (!block.starts_with("data: ")) continue;
    event.data = json::parse(block.substr(6));
    events.push_back(std::move(event));
  }
  return events;
}

struct Said {
  std::string reasoning;
  std::string content;
  int64_t n_prompt = 0;
  int64_t n_answer = 0;
  bool operator==(const Said&) const = default;
};

std::string text_or_empty(const json::value& value) {
  return value.is_string() ? std::string(value.as_string()) : "";
}

Said of_chat(const json::value& body) {
  const json::object& message = body.at("choices").at(0).at("message").as_object();
  Said said = {.content = text_or_empty(message.at("content")),
               .n_prompt = body.at("usage").at("prompt_tokens").as_int64(),
               .n_answer = body.at("usage").at("completion_tokens").as_int64()};
  if (message.contains("reasoning_content")) {
    said.reasoning = text_or_empty(message.at("reasoning_content"));
  }
  return said;
}

void add_usage(const json::value& usage, Said* said) {
  said->n_prompt = usage.at("input_tokens").as_int64();
  if (const json::value* cached = usage.as_object().if_contains("cache_read_input_tokens")) {
    said->n_prompt += cached->as_int64();
  }
  said->n_answer = usage.at("output_tokens").as_int64();
}

Said of_messages(const json::value& body) {
  Said said;
  for (const json::value& block : body.at("content").as_array()) {
    const bool thinking = block.at("type").as_string() == "thinking";
    (thinking ? said.reasoning : said.content) +=
        block.at(thinking ? "thinking" : "text").as_string();
  }
  add_usage(body.at("usage"), &said);
  return said;
}

Said of_messages(const std::vector<Event>& events) {
  Said said;
  for (const Event& event : events) {
    EXPECT_EQ(event.name, event.data.at("type").as_string());
    if (event.name == "message_delta") add_usage(event.data.at("usage"), &said);
    if (event.name != "content_block_delta") continue;
    const json::object& delta = event.data.at("delta").as_object();
    if (delta.contains("thinking")) said.reasoning += delta.at("thinking").as_string();
    if (delta.contains("text")) said.content += delta.at("text").as_string();
  }
  return said;
}

Said of_responses(const json::value& body) {
  Said said;
  for (const json::value& item : body.at("output").as_array()) {
    const bool reasoning = item.at("type").as_string() == "reasoning";
    (reasoning ? said.reasoning : said.content) += item.at("content").at(0).at("text").as_string();
  }
  add_usage(body.at("usage"), &said);
  return said;
}

Said of_responses(const std::vector<Event>& events) {
  Said said;
  for (const Event& event : events) {
    EXPECT_EQ(event.name, event.data.at("type").as_string());
    if (event.name == "response.reasoning_text.delta") {
      said.reasoning += event.data.at("delta").as_string();
    } else if (event.name == "response.output_text.delta") {
      said.content += event.data.at("delta").as_string();
    }
  }
  add_usage(events.back().data.at("response").at("usage"), &said);
  EXPECT_EQ(of_responses(events.back().data.at("response")), said);
  return said;
}

TEST_F(ProtocolsTest, SayTheSameStreamedOrNot) {
  for (const bool thinking : {false, true}) {
    SCOPED_TRACE(thinking);
    const Said want =
        of_chat(ask("/v1/chat/completions", chat_body(thinking, R"(,"max_tokens":24)")));
    EXPECT_FALSE(want.content.empty() && want.reasoning.empty());
    const std::string most = R"(,"max_tokens":24)";
    const std::string most_output = R"(,"max_output_tokens":24)";
    const std::string stream = R"(,"stream":true)";
    EXPECT_EQ(of_messages(ask("/v1/messages", chat_body(thinking, most))), want);
    EXPECT_EQ(of_responses(ask("/v1/responses", responses_body(thinking, most_output))), want);
    int n_done = 0;
    const auto messages =
        events_of(post("/anthropic/v1/messages", chat_body(thinking, most + stream)).body, &n_done);
    EXPECT_EQ(of_messages(messages), want);
    EXPECT_EQ(messages.front().name, "message_start");
    EXPECT_EQ(messages.back().name, "message_stop");
    // The prompt was asked before: what the cache has, less what was computed again of it, is told
    // ahead of the answer and behind it.
    const json::value& started = messages.front().data.at("message").at("usage");
    const json::object& ended = messages.end()[-2].data.as_object();
    const int64_t n_replayed = ended.at("fathom").at("replayed_tokens").as_int64();
    EXPECT_EQ(started.at("cache_read_input_tokens").as_int64(),
              (want.n_prompt - 1) / 64 * 64 - n_replayed);
    EXPECT_EQ(ended.at("usage").at("cache_read_input_tokens"),
              started.at("cache_read_input_tokens"));
    const auto responses =
        events_of(post("/responses", responses_body(thinking, most_output + stream)).body, &n_done);
    EXPECT_EQ(of_responses(responses), want);
    EXPECT_EQ(n_done, 0);
  }
}

TEST_F(ProtocolsTest, CompletionsGoOnFromTheSameIds) {
  const std::string most = R"(,"max_tokens":12)";
  const Said chat = of_chat(ask("/v1/chat/completions", chat_body(false, most)));
  const json::value tokens = ask("/tokenize", chat_body(false, ""));
  EXPECT_EQ(tokens.at("count").as_int64(), chat.n_prompt);
  EXPECT_EQ(tokens.at("max_model_len").as_int64(), kContext);
  const std::string ids = "\"prompt\":" + json::serialize(tokens.at("tokens"));
  const json::value body = ask("/v1/completions", body_of(ids, most));
  const std::string text(body.at("choices").at(0).at("text").as_string());
  // A chat answer has no line feeds ahead.
  EXPECT_EQ(text.substr(std::min(text.find_first_not_of('\n'), text.size())), chat.content);
  EXPECT_EQ(body.at("object").as_string(), "text_completion");
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), chat.n_prompt);

  // Choices share the prompt; each is what its seed alone gives.
  const json::value three = ask("/v1/completions", body_of(ids, most + R"(,"n":3)"));
  ASSERT_EQ(three.at("choices").as_array().size(), 3U);
  for (int64_t i = 0; i < 3; ++i) {
    const std::string seed = R"("seed":)" + std::to_string(5 + i);
    const json::value one =
        ask("/v1/completions", "{" + ids + R"(,"temperature":0.7,)" + seed + most + "}");
    EXPECT_EQ(three.at("choices").at(static_cast<size_t>(i)).at("text"),
              one.at("choices").at(0).at("text"));
  }
  EXPECT_EQ(three.at("usage").at("prompt_tokens").as_int64(), chat.n_prompt);
  int n_done = 0;
  std::map<int64_t, std::string> streamed;
  const std::string stream = R"(,"n":3,"stream":true,"stream_options":{"include_usage":true})";
  const auto events = events_of(post("/v1/completions", body_of(ids, most + stream)).body, &n_done);
  for (const Event& event : events) {
    for (const json::value& choice : event.data.at("choices").as_array()) {
      streamed[choice.at("index").as_int64()] += choice.at("text").as_string();
    }
  }
  for (const auto& [i, said] : streamed) {
    EXPECT_EQ(said, three.at("choices").at(static_cast<size_t>(i)).at("text").as_string());
  }
  EXPECT_EQ(streamed.size(), 3U);
  EXPECT_EQ(n_done, 1);
  EXPECT_EQ(events.back().data.at("usage").at("completion_tokens"),
            three.at("usage").at("completion_tokens"));
}

TEST_F(ProtocolsTest, ATextPromptIsThatOfItsTokensAndCanBeEchoed) {
  const std::string most = R"(,"max_tokens":8)";
  const std::string prompt = R"("prompt":"def add(a, b):")";
  const json::value tokens = ask("/tokenize", "{" + prompt + R"(,"return_token_strs":true})");
  EXPECT_EQ(tokens.at("tokens").as_array().size(), tokens.at("token_strs").as_array().size());
  EXPECT_EQ(ask("/tokenize", "{" + prompt + R"(,"add_special_tokens":false})").at("count"),
            tokens.at("count").as_int64() - 1);
  const std::string ids = "\"prompt\":" + json::serialize(tokens.at("tokens"));
  const json::value by_text = ask("/v1/completions", body_of(prompt, most));
  EXPECT_EQ(by_text.at("choices"), ask("/v1/completions", body_of(ids, most)).at("choices"));
  const std::string text(by_text.at("choices").at(0).at("text").as_string());
  const json::value echoed = ask("/v1/completions", body_of(prompt, most + R"(,"echo":true)"));
  EXPECT_EQ(echoed.at("choices").at(0).at("text").as_string(), "def add(a, b):" + text);
  const std::string again = "{\"tokens\":" + json::serialize(tokens.at("tokens")) + "}";
  EXPECT_EQ(ask("/detokenize", again).at("prompt").as_string(),
            "<｜begin▁of▁sentence｜>def add(a, b):");
  const json::value infill =
      ask("/beta/completions", body_of(prompt + R"(,"suffix":"\nprint add")", most));
  EXPECT_EQ(infill.at("usage").at("prompt_tokens").as_int64(),
            tokens.at("count").as_int64() +
                ask("/tokenize", R"({"prompt":"\nprint add"
})")
                    .at("count")
                    .as_int64() +
                2);
}

TEST_F(ProtocolsTest, LogProbabilitiesAreThoseOfTheTokensSaid) {
  const std::string more = R"(,"max_tokens":10,"logprobs":true,"top_logprobs":3)";
  const json::value body = ask("/v1/chat/completions", chat_body(false, more));
  const json::value& choice = body.at("choices").at(0);
  const json::array& content = choice.at("logprobs").at("content").as_array();
  std::string joined;
  for (const json::value& token : content) {
    for (const json::value& byte : token.at("bytes").as_array()) {
      joined += static_cast<char>(byte.as_int64());
    }
    const json::array& top = token.at("top_logprobs").as_array();
    ASSERT_EQ(top.size(), 3U);
    for (size_t i = 1; i < top.size(); ++i) {
      EXPECT_GE(top[i - 1].at("logprob").as_double(), top[i].at("logprob").as_double());
    }
    EXPECT_LE(token.at("logprob").as_double(), top[0].at("logprob").as_double());
  }
  EXPECT_EQ(joined, choice.at("message").at("content").as_string());
  // The same beside neighbours, and in the other protocols.
  std::vector<std::thread> clients;
  std::vector<std::string> bodies(3);
  for (size_t i = 0; i < bodies.size(); ++i) {
    clients.emplace_back(
        [&, i] { bodies[i] = post("/v1/chat/completions", chat_body(false, more)).body; });
  }
  for (std::thread& client : clients) client.join();
  for (const std::string& other : bodies) {
    EXPECT_EQ(json::parse(other).at("choices"), body.at("choices"));
  }
  const json::value responses =
      ask("/v1/responses", responses_body(false, R"(,"max_output_tokens":10,"top_logprobs":3)"));
  EXPECT_EQ(responses.at("output").at(0).at("content").at(0).at("logprobs"), json::value(content));
  const json::value tokens = ask("/tokenize", chat_body(false, ""));
  const std::string ids = "\"prompt\":" + json::serialize(tokens.at("tokens"));
  const json::value raw = ask("/v1/completions", body_of(ids, R"(,"max_tokens":10,"logprobs":3)"));
  const json::value& logged = raw.at("choices").at(0).at("logprobs");
  const json::array& values = logged.at("token_logprobs").as_array();
  ASSERT_GE(values.size(), content.size());
  EXPECT_EQ(values.back(), content.back().at("logprob"));
  EXPECT_EQ(logged.at("text_offset").at(0).as_int64(), 0);
  EXPECT_EQ(logged.at("top_logprobs").at(0).as_object().size(), 3U);
}

TEST_F(ProtocolsTest, TokensAreCountedAsTheyAreUsed) {
  const json::value counted = ask("/v1/messages/count_tokens", chat_body(true, ""));
  const json::value body = ask("/v1/messages", chat_body(true, R"(,"max_tokens":1)"));
  EXPECT_EQ(counted.at("input_tokens").as_int64(), of_messages(body).n_prompt);
  EXPECT_EQ(body.at("stop_reason").as_string(), "max_tokens");
}

TEST_F(ProtocolsTest, AStopTextEndsEveryAnswer) {
  const Said all = of_chat(ask("/v1/chat/completions", chat_body(false, R"(,"max_tokens":24)")));
  ASSERT_GT(all.content.size(), 8U);
  const std::string stop = all.content.substr(4, 3);
  const std::string before = all.content.substr(0, all.content.find(stop));
  const std::string shown = json::serialize(json::value(stop));
  const json::value messages =
      ask("/v1/messages", chat_body(false, R"(,"max_tokens":24,"stop_sequences":[)" + shown + "]"));
  EXPECT_EQ(of_messages(messages).content, before);
  EXPECT_EQ(messages.at("stop_reason").as_string(), "stop_sequence");
  EXPECT_EQ(messages.at("stop_sequence").as_string(), stop);
  const json::value tokens = ask("/tokenize", chat_body(false, ""));
  const std::string ids = "\"prompt\":" + json::serialize(tokens.at("tokens"));
  const json::value raw =
      ask("/v1/completions", body_of(ids, R"(,"max_tokens":24,"logprobs":0,"stop":)" + shown));
  const json::value& choice = raw.at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason").as_string(), "stop");
  EXPECT_TRUE(std::string(choice.at("text").as_string()).ends_with(before));
}

// Twice: what the cache holds changes nothing. The server is in the deploy schedule.
TEST_F(ProtocolsTest, APromptIsLoggedTokenByToken) {
  const std::string prompt = R"("prompt":"for i in range: print i","max_tokens":2)";
  const json::value ids = ask("/tokenize", R"({"prompt":"for i in range: print i"})");
  const json::array& tokens = ids.at("tokens").as_array();
  std::string first;
  for (int i = 0; i < 2; ++i) {
    const json::value echoed =
        ask("/v1/completions", body_of(prompt, R"(,"echo":true,"logprobs":1)"));
    const json::value asked = ask("/v1/completions", body_of(prompt, R"(,"prompt_logprobs":1)"));
    const json::object& logged = echoed.at("choices").at(0).at("logprobs").as_object();
    const json::array& listed = asked.at("choices").at(0).at("prompt_logprobs").as_array();
    ASSERT_EQ(listed.size(), tokens.size());
    ASSERT_EQ(logged.at("tokens").as_array().size(), tokens.size() + 2);
    EXPECT_TRUE(listed.at(0).is_null());
    EXPECT_TRUE(logged.at("token_logprobs").at(0).is_null());
    std::string text;
    for (size_t at = 1; at < tokens.size(); ++at) {
      const json::value& said = listed.at(at).at(std::to_string(tokens.at(at).as_int64()));
      EXPECT_EQ(said.at("logprob"), logged.at("token_logprobs").at(at));
      EXPECT_EQ(said.at("decoded_token"), logged.at("tokens").at(at));
      EXPECT_EQ(logged.at("text_offset").at(at).as_int64(), static_cast<int64_t>(text.size()));
      text += said.at("decoded_token").as_string();
    }
    EXPECT_EQ(text, "for i in range: print i");
    EXPECT_TRUE(std::string(echoed.at("choices").at(0).at("text").as_string()).starts_with(text));
    const std::string all = json::serialize(asked.at("choices"));
    EXPECT_EQ(std::exchange(first, all), i == 0 ? "" : all);
  }
  std::string many = "5";
  for (int i = 1; i < 400; ++i) many += ",5";
  expect_refused("/v1/completions",
                 body_of("\"prompt\":[" + many + "]", R"(,"prompt_logprobs":20,"n":20)"), 400,
                 "prompt_logprobs: wanted at most 131072 log probabilities of prompt tokens and "
                 "likely ones in all choices, found 168000");
}

TEST_F(ProtocolsTest, EachRefusesInItsOwnForm) {
  const std::string user = R"({"role":"user","content":"x"})";
  for (const auto& [path, members] : std::vector<std::pair<std::string, std::string>>{
           {"/v1/chat/completions", R"("messages":[)" + user + "]"},
           {"/v1/messages", R"("messages":[)" + user + "]"},
           {"/v1/messages/count_tokens", R"("messages":[)" + user + "]"},
           {"/v1/responses", R"("input":"x")"},
           {"/v1/completions", R"("prompt":"x")"},
           {"/tokenize", R"("prompt":"x")"},
           {"/detokenize", R"("tokens":[1])"}}) {
    SCOPED_TRACE(path);
    expect_refused(path, R"({"model":"gpt",)" + members + "}", 404,
                   "model: wanted fathom-34m, found \"gpt\"");
    EXPECT_EQ(post(path, "{").status, 400);
    EXPECT_EQ(post(path, std::string(100'001, ' ')).status, 413);
    HttpClient client(served_.port());
    EXPECT_EQ(client.get(path)->status, 405);
  }
  EXPECT_EQ(ask("/v1/messages", R"({"model":"claude-x","max_tokens":1,"messages":[)" + user + "]}")
                .at("model")
                .as_string(),
            "fathom-34m");
  const json::value large = json::parse(post("/v1/messages", std::string(100'001, ' ')).body);
  EXPECT_EQ(large.at("error").at("type").as_string(), "request_too_large");
  expect_refused("/v1/messages", R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
                 400, "messages[0].content[0].text: wanted a string, found nothing");
  expect_refused("/v1/messages", R"({"max_tokens":600,"messages":[)" + user + "]}", 400,
                 "max_tokens: wanted at most 471 beside a prompt of 41 tokens in a context of 512, "
                 "found 600");
  expect_refused("/v1/responses",
                 R"({"input":[{"role":"user","content":[{"type":"input_image",)"
                 R"("image_url":"https://a/b.png"}]}]})",
                 400,
                 "input[0].content[0]: wanted text, found an image, which this version cannot "
                 "read");
  expect_refused("/v1/completions", R"({"prompt":"x","best_of":2})", 400,
                 "best_of: wanted an integer from 1 to 1, found 2");
  expect_refused("/v1/completions", R"({"prompt":"x","prompt_logprobs":1,"stream":true})", 400,
                 "stream: wanted false beside prompt_logprobs, found true");
  expect_refused("/v1/completions", R"({"prompt":[5,99999999]})", 400,
                 "prompt: token 1 has id 99999999, wanted 0 to " +
                     std::to_string(served_.tokenizer().vocab_size() - 1));
  expect_refused(
      "/v1/completions", R"({"prompt":"x","n":9})", 400,
      "n: wanted at most 3, as many answers as are computed at once (--sequences), found 9");
  expect_refused("/detokenize", R"({"tokens":[1,"a"]})", 400,
                 "tokens[1]: wanted a token id, found a string");
}

}  // namespace
}  // namespace fathom
