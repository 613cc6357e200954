// Goal: what one client does, well or badly, is answered or at least logged, and touches nobody
// else. Method: a server in this process, raw clients over loopback, limits set low.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <map>
#include <thread>

#include "served.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr char kChat[] = "/v1/chat/completions";

bool logged(Served& served, const std::string& text) {
  for (const std::string& line : served.log()) {
    if (line.find(text) != std::string::npos) return true;
  }
  return false;
}

int count_logged(Served& served, const std::string& text) {
  int n = 0;
  for (const std::string& line : served.log()) n += line.find(text) != std::string::npos ? 1 : 0;
  return n;
}

// Whether the text is logged so many times, in the end.
bool comes_to_log(Served& served, const std::string& text, int n) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (count_logged(served, text) < n && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return count_logged(served, text) == n;
}

TEST(Transport, NobodyIsCutOffForOutputsThatWaitForTheServer) {
  Served served({.waiting_outputs_max = 0});
  HttpClient whole(served.port());
  whole.send(post_text(kChat, long_call(false)));
  HttpClient streamed(served.port());
  streamed.send(post_text(kChat, long_call()));
  ASSERT_TRUE(streamed.read_until("data: "));
  HttpClient other(served.port());
  EXPECT_EQ(other.post("/tokenize", R"({"prompt":")" + std::string(100'000, ' ') + "\"}")->status,
            200);
  const auto answer = whole.read_reply();
  ASSERT_TRUE(answer);
  EXPECT_EQ(json::parse(answer->body).at("usage").at("completion_tokens").as_int64(), 300);
  EXPECT_TRUE(streamed.read_until("data: [DONE]"));
}

TEST(Transport, ATextThatCannotFitIsRefusedAtOnce) {
  Served served({});
  HttpClient client(served.port());
  const std::string spaces(20'000'000, ' ');
  for (const char* path : {"/v1/completions", "/tokenize"}) {
    const auto reply = client.post(path, R"({"prompt":")" + spaces + "\"}");
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 400);
    EXPECT_NE(reply->body.find("prompt: wanted "), std::string::npos) << reply->body;
    EXPECT_NE(reply->body.find(" tokens, found more than "), std::string::npos) << reply->body;
  }
  const auto ids = client.post(
      "/detokenize", R"({"tokens":[1)" + [] {
        std::string more;
        for (int i = 0; i < 100'000; ++i) more += ",1";
        return more;
      }() + "]}");
  EXPECT_NE(ids->body.find("tokens: wanted at most 65536 ids, found 100001"), std::string::npos);
}

TEST(Transport, ADrainEndsWithItsTime) {
  Served served({.drain_ms = 1});
  HttpClient client(served.port());
  client.send(post_text(kChat, long_call()));
  ASSERT_TRUE(client.read_until("data: "));
  served.server().stop();
  EXPECT_TRUE(client.read_until("before the server goes down"));
  served.stop();
  EXPECT_TRUE(logged(served, "- - drain: wanted an end of all requests within 1 ms, found 1"));
}

// Who asks while answers end is told; a connection that was kept has its turn.
TEST(Transport, ADrainIsToldToWhoeverAsks) {
  Served served({});
  HttpClient kept(served.port());
  HttpClient kept_too(served.port());
  EXPECT_EQ(kept.get("/ready")->status, 200);
  EXPECT_EQ(kept_too.get("/ready")->status, 200);
  HttpClient live(served.port());
  live.send(post_text(kChat, long_call()));
  ASSERT_TRUE(live.read_until("data: "));
  served.server().stop();
  const auto ready = kept.get("/ready");
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->status, 503);
  EXPECT_EQ(ready->headers.at("connection"), "close");
  const auto ask = [&](const std::string& path) {
    HttpClient client(served.port());
    const auto reply = client.get(path);
    return reply ? reply->status : 0;
  };
  EXPECT_EQ(ask("/health"), 200);
  EXPECT_EQ(ask("/ready"), 503);
  EXPECT_EQ(ask("/metrics"), 200);
  EXPECT_EQ(ask("/console/state"), 200);
  HttpClient late(served.port());
  late.send("POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 40000000\r\n\r\n{");
  for (HttpClient* client : {&kept_too, &late}) {
    if (client == &kept_too) client->send(post_text(kChat, long_call()));
    const auto refused = client->read_reply();
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->status, 503);
    EXPECT_NE(refused->body.find("the server is going down"), std::string::npos);
    EXPECT_GE(std::stoi(refused->headers.at("retry-after")), 1);
    EXPECT_LE(std::stoi(refused->headers.at("retry-after")), 30);
  }
  HttpClient silent(served.port());
  HttpClient half(served.port());
  half.send("GET /health HTTP/1.1\r\nHost:");
  EXPECT_TRUE(live.read_until("data: [DONE]"));  // and neither of the last two holds up the end
  served.stop();
  EXPECT_TRUE(logged(served, "GET /ready 503 "));
  EXPECT_FALSE(logged(served, "GET /health"));
}

TEST(Transport, AHangupWithNothingToReadAgainIsADrain) {
  Served served({.end_at_signals = true});
  HttpClient live(served.port());
  live.send(post_text(kChat, long_call()));
  ASSERT_TRUE(live.read_until("data: "));
  ASSERT_EQ(::raise(SIGHUP), 0);
  EXPECT_TRUE(live.read_until("data: [DONE]"));
  EXPECT_TRUE(comes_to_log(served, "- - hangup: wanted keys or a certificate", 1));
}

TEST(Transport, ARequestMayAskBeforeItSendsItsBody) {
  Served served({});
  HttpClient client(served.port());
  const std::string body = R"({"prompt":"x"})";
  const std::string head =
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\nExpect: ";
  client.send(head + "100-continue\r\n\r\n");
  ASSERT_TRUE(client.read_until("HTTP/1.1 100 Continue\r\n\r\n"));
  client.send(body);
  ASSERT_TRUE(client.read_until("HTTP/1.1 200 OK\r\n"));
  HttpClient other(served.port());
  other.send(head + "more\r\n\r\n");
  EXPECT_EQ(other.read_reply()->status, 417);
}

TEST(Transport, ABodyThatEndsEarlyIsRefusedAndLogged) {
  Served served({});
  HttpClient client(served.port());
  client.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{");
  client.end_sending();
  const auto reply = client.read_reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 400);
  EXPECT_TRUE(logged(served, "POST /tokenize 400 peer=127.0.0.1:"));
  EXPECT_TRUE(logged(served, ": request: wanted all of it"));
}

// What stands around a body in chunks, sent for as long as the server takes it.
struct Framing {
  const char* name;
  const char* head;
  std::string more;
};

class EndlessFraming : public testing::TestWithParam<Framing> {};

TEST_P(EndlessFraming, IsRefused) {
  Served served({});
  HttpClient client(served.port());
  client.send(
      std::string("POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n") +
      GetParam().head);
  for (int i = 0; i < 4000; ++i) client.send(GetParam().more);
  const auto reply = client.read_reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status / 100, 4);
  EXPECT_EQ(reply->headers.at("connection"), "close");
  HttpClient other(served.port());
  EXPECT_EQ(other.post("/tokenize", R"({"prompt":"x"})")->status, 200);
}

INSTANTIATE_TEST_SUITE_P(
    Chunks, EndlessFraming,
    testing::Values(Framing{"Trailers", "0\r\n", "X-a: " + std::string(1000, 'y') + "\r\n"},
                    Framing{"Extension", "5;", std::string(1000, 'a')},
                    Framing{"Extensions", "", "1;" + std::string(1000, 'a') + "\r\nx\r\n"},
                    Framing{"Size", "", std::string(1000, '0')}),
    [](const auto& info) { return info.param.name; });

TEST(Transport, ChunksOfOneByteAndTrailersAreTaken) {
  Served served({});
  HttpClient client(served.port());
  std::string chunks;
  for (const char c : std::string(R"({"prompt":"xyz"})"))
    chunks += std::string("1\r\n") + c + "\r\n";
  client.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n" + chunks +
              "0\r\nX-Sum: 1\r\n\r\n");
  EXPECT_EQ(client.read_reply()->status, 200);
  EXPECT_EQ(client.get("/health")->status, 200);
}

// What follows would else be read as a request of whoever shares the connection (RFC 9112 6.1).
TEST(Transport, ABodyOfAnUnknownCodingIsNotReadAsARequest) {
  Served served({});
  for (const char* coding : {"xchunked", "chunked, identity", "gzip, chunked", "identity", ""}) {
    HttpClient client(served.port());
    client.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " + std::string(coding) +
                "\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    const auto reply = client.read_reply();
    ASSERT_TRUE(reply) << coding;
    EXPECT_EQ(reply->status, 501) << coding;
    EXPECT_FALSE(client.read_reply()) << coding;
  }
  HttpClient old(served.port());
  old.send(
      "POST /tokenize HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(old.read_reply()->status, 400);
  EXPECT_FALSE(old.get("/health"));
}

TEST(Transport, AnEncodedBodyIsRefused) {
  Served served({});
  HttpClient client(served.port());
  client.send(post_text("/tokenize", R"({"prompt":"x"})", "Content-Encoding: gzip\r\n"));
  EXPECT_EQ(client.read_reply()->status, 415);
}

TEST(Transport, AClientThatGoesAwayIsSeenBehindItsNextRequest) {
  Served served({});
  for (const bool stream : {false, true}) {
    HttpClient client(served.port());
    client.send(post_text(kChat, long_call(stream)) + post_text(kChat, long_call(stream)));
  }
  EXPECT_TRUE(comes_to_log(served, " 499 ", 2));
  EXPECT_EQ(count_logged(served, " 200 "), 0);
}

TEST(Transport, WhatWasAskedBeforeTheEndIsAnswered) {
  Served served({});
  HttpClient client(served.port());
  const std::string call = R"({"prompt":"one","max_tokens":3})";
  client.send(post_text("/v1/completions", call) + post_text("/v1/completions", call));
  client.end_sending();
  int n_answers = 0;
  while (const auto reply = client.read_reply()) n_answers += reply->status == 200 ? 1 : 0;
  EXPECT_EQ(n_answers, 2);
}

// A client that always has more to send keeps its connection no longer than one that has none.
TEST(Transport, ARefusedClientThatSendsOnIsLeft) {
  Served served({.body_bytes_max = 1000});
  HttpClient client(served.port());
  client.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 99000000000\r\n\r\n");
  const std::string piece(65'536, 'x');
  const auto begun = std::chrono::steady_clock::now();
  while (client.send(piece) &&
         std::chrono::steady_clock::now() < begun + std::chrono::seconds(20)) {
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
}

TEST(Transport, LongBodiesShareABound) {
  Served served({.body_bytes_max = 100'000, .bodies_bytes_max = 100'000});
  HttpClient slow(served.port());
  slow.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n" +
            std::string("Expect: 100-continue\r\n\r\n"));
  ASSERT_TRUE(slow.read_until("100 Continue\r\n\r\n"));
  HttpClient other(served.port());
  const std::string long_body = R"({"prompt":")" + std::string(80'000, 'x') + "\"}";
  const auto refused = other.post("/tokenize", long_body);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 503);
  EXPECT_EQ(refused->headers.at("retry-after"), "1");
  HttpClient third(served.port());
  EXPECT_EQ(third.post("/tokenize", R"({"prompt":"x"})")->status, 200);
  slow.send(std::string(90'000, ' '));
  EXPECT_TRUE(slow.read_until("HTTP/1.1 400 "));
  EXPECT_EQ(third.post("/tokenize", long_body)->status, 200);
}

TEST(Transport, AConnectionTooManyIsTold) {
  Served served({.max_connections = 1});
  HttpClient first(served.port());
  EXPECT_EQ(first.get("/health")->status, 200);
  HttpClient second(served.port());
  const auto refused = second.get("/v1/models");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 503);
  EXPECT_EQ(refused->headers.at("retry-after"), "1");
  EXPECT_EQ(refused->headers.at("connection"), "close");
  EXPECT_EQ(first.get("/health")->status, 200);
  EXPECT_TRUE(logged(served, "- - connection: wanted a place, found 1 connections"));
}

// However many connections are silent.
TEST(Transport, ProbesHaveAPlaceOfTheirOwn) {
  Served served({.max_connections = 2, .probe_connections = 3, .probe_ms = 100});
  std::vector<std::unique_ptr<HttpClient>> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(std::make_unique<HttpClient>(served.port()));
  for (int i = 0; i < 5; ++i) {
    for (const char* path : {"/health", "/ready"}) {
      HttpClient probe(served.port());
      const auto reply = probe.get(path);
      ASSERT_TRUE(reply) << path;
      EXPECT_EQ(reply->status, 200) << path;
      EXPECT_FALSE(probe.get(path));
    }
  }
  EXPECT_FALSE(silent.back()->read_until("x"));  // its time is over
  silent.front()->send("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(silent.front()->read_reply()->status, 200);
}

TEST(Transport, HeadIsGetWithoutABody) {
  Served served({});
  HttpClient client(served.port());
  client.send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(client.read_until("Content-Length: 15\r\n\r\n"));
  EXPECT_TRUE(client.unread().starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(client.unread().ends_with("\r\n\r\n"));
  client.send("HEAD /tokenize HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(client.read_until("HTTP/1.1 405 "));
  EXPECT_FALSE(client.read_until("wanted POST"));
}

TEST(Transport, WhatACallerNamesIsShownAsText) {
  Served served({});
  HttpClient client(served.port());
  const auto reply = client.get("/\xff\x9b" + std::string("31m"));
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 404);
  EXPECT_EQ(json::parse(reply->body).at("error").at("message").as_string(),
            "path: wanted a route of this server, found \"/\\xFF\\x9B31m\"");
  EXPECT_TRUE(logged(served, "GET \"/\\xFF\\x9B31m\" 404 peer=127.0.0.1:"));
  EXPECT_TRUE(logged(served, ": path: wanted a route"));
  const auto model = client.get("/v1/models/fathom-34m");
  ASSERT_TRUE(model);
  EXPECT_EQ(json::parse(model->body).at("id").as_string(), "fathom-34m");
  EXPECT_GT(json::parse(model->body).at("created").as_int64(), 1'700'000'000);
  EXPECT_EQ(client.get("/v1/models/other")->status, 404);
  const auto long_name = client.post(kChat, R"({"messages":[{"role":"user","content":"x"}],)"
                                            R"("model":")" +
                                                std::string(100'000, 'm') + "\"}");
  EXPECT_EQ(long_name->status, 404);
  EXPECT_LT(long_name->body.size(), 400U);
}

TEST(Transport, EachAnswerHasItsId) {
  Served served({});
  HttpClient client(served.port());
  const auto whole = client.post("/v1/completions", R"({"prompt":"one","max_tokens":3})");
  const std::string id(json::parse(whole->body).at("id").as_string());
  EXPECT_TRUE(id.starts_with("cmpl-")) << id;
  EXPECT_EQ(whole->headers.at("x-request-id"), id);
  const auto refused = client.post("/v1/messages", "{}");
  EXPECT_EQ(refused->status, 400);
  const std::string other = refused->headers.at("x-request-id");
  EXPECT_EQ(refused->headers.at("request-id"), other);
  EXPECT_TRUE(other.starts_with("req_")) << other;
  EXPECT_NE(client.get("/health")->headers.at("x-request-id"), other);
  client.send(post_text(kChat, long_call()));
  ASSERT_TRUE(client.read_until("data: [DONE]"));
  const std::string streamed = client.unread();
  const size_t at = streamed.find("x-request-id: ") + 14;
  const std::string its_id = streamed.substr(at, streamed.find('\r', at) - at);
  EXPECT_NE(streamed.find("\"id\":\"" + its_id + "\""), std::string::npos) << its_id;
  served.stop();
  for (const std::string& known : {id, other, its_id}) {
    EXPECT_EQ(count_logged(served, " peer=127.0.0.1:"), 3);
    EXPECT_EQ(count_logged(served, " id=" + known), 1) << known;
  }
}

TEST(Transport, ASlashTooManyIsShownTheWay) {
  Served served({});
  HttpClient client(served.port());
  for (const auto& [path, meant] : std::map<std::string, std::string>{
           {"/", "/console"}, {"/console/", "/console"}, {"/v1/models/", "/v1/models"}}) {
    const auto reply = client.get(path);
    EXPECT_EQ(reply->status, 307) << path;
    EXPECT_EQ(reply->headers.at("location"), meant);
  }
  EXPECT_EQ(client.post("/v1/chat/completions/", "{}")->headers.at("location"), kChat);
  EXPECT_EQ(client.get("/nowhere/")->status, 404);
  EXPECT_EQ(client.get("//")->status, 404);
}

TEST(ListenAddress, IsAnAddressOrLocalhost) {
  EXPECT_EQ(*listen_address("localhost"), "127.0.0.1");
  EXPECT_EQ(*listen_address("[::1]"), "::1");
  EXPECT_EQ(*listen_address("0.0.0.0"), "0.0.0.0");
  for (const char* wrong : {"", "256.1.1.1", "[127.0.0.1]", "::1", "example"}) {
    EXPECT_FALSE(listen_address(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace fathom
