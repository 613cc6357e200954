// Goal: a client that reads nothing, ends its side early or asks for more memory than there is
// costs its own request at most, and a second signal ends the process at once. Method: a server in
// this process, raw clients over loopback with small windows; beside each, a client whose answer is
// the one that it gets alone.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "served.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr char kChat[] = "/v1/chat/completions";

// Some 700 KB of events.
constexpr char kWordy[] =
    R"({"prompt":[5,6,7],"n":2,"max_tokens":300,"temperature":2,"seed":1,"logprobs":20,)"
    R"("stream":true})";
// Some 1.5 MB.
constexpr char kEndless[] =
    R"({"prompt":[5,6,7],"n":3,"max_tokens":450,"temperature":2,"seed":1,"logprobs":20,)"
    R"("stream":true})";
constexpr char kShort[] = R"({"prompt":[8,9,10],"max_tokens":6,"seed":3})";

std::optional<std::string> line_with(Served& served, const std::string& text) {
  for (const std::string& line : served.log()) {
    if (line.find(text) != std::string::npos) return line;
  }
  return std::nullopt;
}

// Until the log has it, for a minute at most.
bool logs(Served& served, const std::string& text) {
  for (int i = 0; i < 6000 && !line_with(served, text); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return line_with(served, text).has_value();
}

json::value choices_of(Served& served, const std::string& body) {
  HttpClient client(served.port());
  const auto reply = client.post("/v1/completions", body);
  EXPECT_TRUE(reply);
  if (!reply) return nullptr;
  EXPECT_EQ(reply->status, 200) << reply->body;
  return json::parse(reply->body).at("choices");
}

void expect_cut_off(const ServerOptions& options) {
  Served served(options);
  const json::value alone = choices_of(served, kShort);
  HttpClient slow(served.port(), 4096);
  slow.send(post_text("/v1/completions", kEndless));
  EXPECT_EQ(choices_of(served, kShort), alone);
  ASSERT_TRUE(logs(served, "POST /v1/completions 499 ")) << testing::PrintToString(served.log());
  EXPECT_EQ(choices_of(served, kShort), alone);
  EXPECT_FALSE(slow.read_until("[DONE]"));
  EXPECT_TRUE(slow.unread().starts_with("HTTP/1.1 200 OK\r\n"));
}

TEST(Clients, OneThatTakesNothingIsCutOffAfterItsTime) { expect_cut_off({.write_ms = 300}); }

TEST(Clients, OneWithTooMuchUnreadIsCutOff) {
  expect_cut_off({.write_ms = 600'000, .waiting_outputs_max = 8});
}

// The same client, if it reads.
TEST(Clients, OneThatReadsLateGetsAll) {
  Served served({});
  HttpClient late(served.port(), 4096);
  late.send(post_text("/v1/completions", kWordy));
  EXPECT_EQ(choices_of(served, kShort).as_array().size(), 1U);
  EXPECT_TRUE(late.read_until("[DONE]"));
  EXPECT_TRUE(logs(served, "POST /v1/completions 200 "));
}

TEST(Clients, OneThatEndsItsSideAndReadsGetsItsAnswer) {
  Served served({});
  const json::value alone = choices_of(served, kShort);
  HttpClient whole(served.port());
  whole.send(post_text("/v1/completions", kShort));
  whole.end_sending();
  auto reply = whole.read_reply();
  while (reply && reply->status == 102) reply = whole.read_reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(json::parse(reply->body).at("choices"), alone);
  EXPECT_EQ(reply->headers.at("connection"), "close");
  HttpClient streamed(served.port());
  streamed.send(post_text(kChat, long_call()));
  streamed.end_sending();
  EXPECT_TRUE(streamed.read_until("data: [DONE]"));
  EXPECT_NE(streamed.unread().find(R"("finish_reason":"length")"), std::string::npos);
  EXPECT_FALSE(line_with(served, " 499 "));
}

TEST(Clients, OneThatIsGoneIsCancelledWhetherItsAnswerIsStreamedOrNot) {
  for (const bool stream : {false, true}) {
    Served served({});
    {
      HttpClient gone(served.port());
      gone.send(post_text(kChat, long_call(stream)));
    }
    ASSERT_TRUE(logs(served, std::string(kChat) + " 499 "));
    const std::string line = *line_with(served, " 499 ");
    const size_t at = line.find("answered=");
    ASSERT_NE(at, std::string::npos);
    EXPECT_LT(std::stoi(line.substr(at + 9)), 100) << line;
  }
}

void end_twice(int signal) {
  Served served({.drain_ms = 600'000, .end_at_signals = true});
  HttpClient idle(served.port());
  FATHOM_CHECK(idle.get("/health").has_value());
  HttpClient client(served.port());
  client.send(post_text(kChat, long_call()));
  FATHOM_CHECK(client.read_until("data: "));
  ::raise(signal);
  while (idle.get("/health")) {  // until it drains
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::raise(signal);
  std::this_thread::sleep_for(std::chrono::seconds(60));
  std::_Exit(3);
}

TEST(ClientsDeathTest, ASecondSignalInADrainEndsAtOnce) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(end_twice(SIGTERM), testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(end_twice(SIGINT), testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace fathom
