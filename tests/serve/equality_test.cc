// Goal: what a client gets in the exact mode with the exact restore does not depend on what else
// the server does or did: tokens and log probabilities, top ones among them, as alone. Method: a
// server in this process with the trained model; each prompt alone in a cache that was cleared,
// then after hits at every kind of position, beside neighbours, after a cancellation, after
// eviction, and after a drain and another start. Built twice: short, and long with the label long.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <iterator>
#include <thread>

#include "served.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr char kPath[] = "/v1/completions";
#ifdef FATHOM_EQUALITY_LONG
constexpr int64_t kContext = 1280;
constexpr int64_t kAnswer = 24;
constexpr size_t kNeighbours = 15;
// Of a window of 64: block edges, one off, odd, ends inside the last window, beyond a whole replay.
const std::vector<int64_t> kLengths = {63,  64,  65,  127, 128, 129, 131, 191,
                                       193, 257, 319, 320, 321, 777, 1025};
const std::vector<int64_t> kTurns = {65, 101, 128, 191, 333, 900};  // where states are kept
#else
constexpr int64_t kContext = 512;
constexpr int64_t kAnswer = 5;
constexpr size_t kNeighbours = 3;
const std::vector<int64_t> kLengths = {64, 65, 129, 131, 192};
const std::vector<int64_t> kTurns = {65, 101, 128};
#endif

// Tokens by their bytes, and what was said of each.
struct Said {
  std::string text;
  std::vector<std::string> tokens;
  std::vector<double> logprobs;
  std::vector<std::string> top;
  std::string finish;
  bool operator==(const Said&) const = default;
};

void add(const json::value& body, Said* said) {
  for (const json::value& choice : body.at("choices").as_array()) {
    said->text += choice.at("text").as_string();
    if (choice.at("finish_reason").is_string()) {
      said->finish = choice.at("finish_reason").as_string();
    }
    if (!choice.at("logprobs").is_object()) continue;
    const json::value& logged = choice.at("logprobs");
    for (const json::value& token : logged.at("tokens").as_array()) {
      said->tokens.emplace_back(token.as_string());
    }
    for (const json::value& value : logged.at("token_logprobs").as_array()) {
      said->logprobs.push_back(value.to_number<double>());
    }
    for (const json::value& likely : logged.at("top_logprobs").as_array()) {
      said->top.push_back(json::serialize(likely));
    }
  }
}

struct Answered {
  Said said;
  int64_t cached = 0;    // whose entries were there, replayed ones among them
  int64_t replayed = 0;  // which the usage does not call cached
  std::string restore;
};

class ServedEquality : public testing::Test {
 protected:
  static ServedEngine engine() {
    return {.schedule = Schedule::kExact, .context = kContext, .n_sequences = 4, .max_live = 32};
  }

  void SetUp() override {
    const NewKey key = *make_key("root");
    header_ = "Authorization: Bearer " + key.key + "\r\n";
    ServedEngine one = engine();
    one.n_sequences = 1;
    alone_server_ = std::make_unique<Served>(
        ServerOptions{.keys = *read_keys(key.table + "role = \"admin\"\n", "keys")}, one);
    std::ifstream file(std::string(FATHOM_SOURCE_DIR) + "/docs/design/engine.md");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    document_ = *alone_server_->tokenizer().encode(text, AddedTokens::kIgnore);
    ASSERT_GT(static_cast<int64_t>(document_.size()), kContext);
  }

  std::string call(int64_t n, const std::string& more = "", bool backwards = false) const {
    json::array ids(document_.begin(), document_.begin() + n);
    if (backwards) std::reverse(ids.begin(), ids.end());
    return "{\"prompt\":" + json::serialize(ids) + ",\"max_tokens\":" + std::to_string(kAnswer) +
           ",\"seed\":" + std::to_string(n) +
           R"(,"temperature":0.9,"logprobs":3,"restore":"exact")" + more + "}";
  }

  static Answered answer(const std::optional<ClientReply>& reply) {
    Answered answered;
    EXPECT_TRUE(reply);
    if (!reply) return answered;
    EXPECT_EQ(reply->status, 200) << reply->body;
    const json::value body = json::parse(reply->body);
    add(body, &answered.said);
    answered.replayed = body.at("fathom").at("replayed_tokens").as_int64();
    answered.cached = body.at("usage").at("prompt_cache_hit_tokens").as_int64() + answered.replayed;
    answered.restore = body.at("fathom").at("restore").as_string();
    return answered;
  }

  Answered ask(Served& served, int64_t n) const {
    HttpClient client(served.port());
    return answer(client.post(kPath, call(n)));
  }

  const Said& alone(int64_t n) {
    const auto found = alone_.find(n);
    if (found != alone_.end()) return found->second;
    HttpClient client(alone_server_->port());
    client.always_send(header_);
    EXPECT_EQ(client.post("/admin/cache/clear", "")->status, 200);
    const Answered answered = answer(client.post(kPath, call(n)));
    EXPECT_EQ(answered.cached, 0);
    EXPECT_EQ(answered.said.logprobs.size(), answered.said.tokens.size());
    EXPECT_GE(answered.said.tokens.size(), 1U);
    return alone_.emplace(n, answered.said).first->second;
  }

  void expect_as_alone(const Said& said, int64_t n) {
    SCOPED_TRACE("prompt of " + std::to_string(n));
    const Said& want = alone(n);
    EXPECT_EQ(said.tokens, want.tokens);
    EXPECT_EQ(said.logprobs, want.logprobs);
    EXPECT_EQ(said, want);
  }

  static int64_t blocks_before(int64_t n) { return (n - 1) / kBlockTokens * kBlockTokens; }

  std::string header_;
  std::unique_ptr<Served> alone_server_;
  std::vector<TokenId> document_;
  std::map<int64_t, Said> alone_;
};

TEST_F(ServedEquality, AHitOfBlocksAtEachKindOfPosition) {
  Served served({}, engine());
  ask(served, kLengths.back() + 70);
  for (const int64_t n : kLengths) {
    const Answered answered = ask(served, n);
    EXPECT_EQ(answered.cached, blocks_before(n));
    EXPECT_NE(answered.restore, "bounded");
    expect_as_alone(answered.said, n);
  }
}

// A state lies behind the last token but one of the prompt that left it, which is no block edge.
TEST_F(ServedEquality, AHitOfAStateAtEachKindOfPosition) {
  ServedEngine with_states = engine();
  with_states.session_bytes = int64_t{1} << 28;
  Served served({}, with_states);
  for (const int64_t n : kTurns) {
    expect_as_alone(ask(served, n).said, n);
    for (const int64_t more : {1, 7}) {
      const Answered answered = ask(served, n + more);
      // At the state or behind it, where the answer that it led to was the document's own text.
      EXPECT_GE(answered.cached, more == 1 ? n - 1 : n) << n;
      EXPECT_LE(answered.replayed, 1) << n;
      expect_as_alone(answered.said, n + more);
    }
  }
}

TEST_F(ServedEquality, Neighbours) {
  for (const bool warm : {false, true}) {
    ServedEngine many = engine();
    many.n_sequences = static_cast<int64_t>(kNeighbours) + 1;
    Served served({}, many);
    if (warm) ask(served, kLengths.back());
    std::vector<std::optional<ClientReply>> replies(kNeighbours + 1);
    std::vector<std::thread> clients;
    for (size_t i = 0; i < replies.size(); ++i) {
      clients.emplace_back([&, i] {
        HttpClient client(served.port());
        replies[i] = client.post(kPath, call(kLengths[i % kLengths.size()]));
      });
    }
    for (std::thread& client : clients) client.join();
    for (size_t i = 0; i < replies.size(); ++i) {
      expect_as_alone(answer(replies[i]).said, kLengths[i % kLengths.size()]);
    }
  }
}

TEST_F(ServedEquality, AfterACancellation) {
  const int64_t n = kLengths.back();
  for (const bool answering : {false, true}) {
    Served served({}, engine());
    {
      HttpClient client(served.port());
      client.send(post_text(kPath, call(n, R"(,"stream":true)")));
      const bool began = !answering || client.read_until("data: ");
      ASSERT_TRUE(began);
    }
    expect_as_alone(ask(served, n).said, n);
    const Answered again = ask(served, n);
    EXPECT_EQ(again.cached, blocks_before(n));
    expect_as_alone(again.said, n);
  }
}

TEST_F(ServedEquality, AfterEviction) {
  const int64_t n = kLengths.back();
  ServedEngine small = engine();
  small.n_blocks = (n + 100) / kBlockTokens + 1;
  Served served({}, small);
  ask(served, n);
  HttpClient client(served.port());
  EXPECT_EQ(answer(client.post(kPath, call(n, "", true))).cached, 0);
  const Answered again = ask(served, n);
  EXPECT_LT(again.cached, blocks_before(n));
  expect_as_alone(again.said, n);
  expect_as_alone(ask(served, n).said, n);
}

TEST_F(ServedEquality, WhileDrainingAndAfterAnotherStart) {
  const int64_t n = kLengths.back();
  Said said;
  {
    Served served({}, engine());
    ask(served, kLengths.front());
    HttpClient client(served.port());
    client.send(post_text(kPath, call(n, R"(,"stream":true)")));
    ASSERT_TRUE(client.read_until("data: "));
    served.server().stop();
    const auto reply = client.read_reply();
    ASSERT_TRUE(reply);
    for (size_t at = reply->body.find("data: {"); at != std::string::npos;
         at = reply->body.find("data: {", at + 1)) {
      const std::string line = reply->body.substr(at + 6, reply->body.find("\n\n", at) - at - 6);
      add(json::parse(line), &said);
    }
  }
  expect_as_alone(said, n);
  Served served({}, engine());
  const Answered cold = ask(served, n);
  EXPECT_EQ(cold.cached, 0);
  expect_as_alone(cold.said, n);
  expect_as_alone(ask(served, n).said, n);
}

}  // namespace
}  // namespace fathom
