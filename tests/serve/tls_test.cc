// Goal: inside TLS the server answers as without; who speaks no TLS or vanishes disturbs nobody; a
// certificate that cannot be used is one line. Method: a self-signed certificate made here, a
// client that trusts nothing else, over loopback.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/folder_testing.h"
#include "self_signed.h"
#include "serve/tls.h"
#include "served.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr char kChat[] = "/v1/chat/completions";

class Tls : public FolderTest {
 protected:
  Tls() : made_(make_self_signed()) {
    std::filesystem::create_directories(folder_);
    write("cert.pem", made_.certificate);
    write("key.pem", made_.key);
  }

  std::string file(const std::string& name) const { return folder() + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name)) << text;
  }
  ServerOptions options() const {
    return {.body_bytes_max = 100'000,
            .read_ms = 2000,
            .tls_certificate = file("cert.pem"),
            .tls_key = file("key.pem")};
  }
  std::string refusal(const std::string& certificate, const std::string& key) const {
    boost::asio::ssl::context context(boost::asio::ssl::context::tls_server);
    const auto loaded = load_certificate(context, file(certificate), file(key));
    EXPECT_FALSE(loaded);
    return loaded ? "" : loaded.error().message;
  }

  static std::string call(const std::string& more) {
    return R"({"messages":[{"role":"user","content":"Write a loop."}],)"
           R"("thinking":{"type":"disabled"},"temperature":0.7,"seed":5,"max_tokens":12)" +
           more + "}";
  }

  const SelfSigned made_;
};

std::string joined(const std::string& events) {
  std::string text;
  size_t at = 0;
  while ((at = events.find("data: {", at)) != std::string::npos) {
    const json::value event = json::parse(events.substr(at + 6, events.find("\n\n", at) - at - 6));
    text += event.at("choices").at(0).at("delta").at("content").as_string();
    ++at;
  }
  return text;
}

TEST_F(Tls, AnswersAsWithoutIt) {
  Served plain({.version = "0"});
  HttpClient plain_client(plain.port());
  const json::value want = json::parse(plain_client.post(kChat, call(""))->body);
  Served served(options());
  HttpClient client(served.port(), made_.certificate);
  ASSERT_TRUE(client.secured());
  const auto whole = client.post(kChat, call(""));
  ASSERT_TRUE(whole);
  EXPECT_EQ(json::parse(whole->body).at("choices"), want.at("choices"));
  const auto streamed = client.post(kChat, call(R"(,"stream":true)"));  // the same connection
  ASSERT_TRUE(streamed);
  EXPECT_EQ(joined(streamed->body),
            want.at("choices").at(0).at("message").at("content").as_string());
  EXPECT_EQ(client.post(kChat, std::string(100'001, ' '))->status, 413);
}

TEST_F(Tls, WhoTrustsAnotherCertificateOrSpeaksNoneIsLeft) {
  Served served(options());
  HttpClient stranger(served.port(), make_self_signed().certificate);
  EXPECT_FALSE(stranger.secured());
  HttpClient plain(served.port());
  plain.send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_FALSE(plain.read_until("HTTP/1.1"));
  HttpClient silent(served.port());  // a handshake that never begins ends after read_ms
  HttpClient slow(served.port(), made_.certificate);
  slow.send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 9\r\n\r\n{");
  EXPECT_FALSE(silent.read_until("x"));
  EXPECT_EQ(slow.read_reply()->status, 408);
  HttpClient large(served.port(), made_.certificate);
  large.send("GET /health HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n");
  EXPECT_EQ(large.read_reply()->status, 431);
  HttpClient good(served.port(), made_.certificate);
  EXPECT_EQ(good.get("/health")->status, 200);
}

TEST_F(Tls, ClientsThatGoAwayAreCancelled) {
  Served served(options());
  for (const bool stream : {false, true}) {
    HttpClient client(served.port(), made_.certificate);
    client.send(post_text(kChat, long_call(stream)));
  }
  const auto n_gone = [&] {
    int n = 0;
    for (const std::string& line : served.log()) n += line.find(" 499 ") != std::string::npos;
    return n;
  };
  while (n_gone() < 2) std::this_thread::yield();
  HttpClient client(served.port(), made_.certificate);
  EXPECT_EQ(client.post(kChat, call(""))->status, 200);
}

TEST_F(Tls, ADrainFinishesWhatIsLive) {
  Served served(options());
  HttpClient client(served.port(), made_.certificate);
  HttpClient idle(served.port(), made_.certificate);
  HttpClient shaking(served.port());
  EXPECT_EQ(idle.get("/health")->status, 200);
  client.send(post_text(kChat, call(R"(,"stream":true)")));
  ASSERT_TRUE(client.read_until("data: "));
  served.server().stop();
  const auto reply = client.read_reply();
  ASSERT_TRUE(reply);
  EXPECT_NE(reply->body.find("data: [DONE]"), std::string::npos);
  served.stop();
  EXPECT_FALSE(idle.get("/health"));
}

// As a new one is put in the place of one that ends; then files that are broken.
TEST_F(Tls, TheCertificateIsReadAgain) {
  ServerOptions with_signals = options();
  with_signals.end_at_signals = true;
  Served served(with_signals);
  const SelfSigned renewed = make_self_signed();
  const auto read_again = [&](const std::string& wanted) {
    const size_t n_before = served.log().size();
    ASSERT_EQ(::raise(SIGHUP), 0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (served.log().size() == n_before && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ASSERT_GT(served.log().size(), n_before);
    EXPECT_EQ(served.log().at(n_before).substr(0, wanted.size()), wanted);
  };
  HttpClient before(served.port(), made_.certificate);
  EXPECT_EQ(before.get("/health")->status, 200);
  write("cert.pem", renewed.certificate);
  read_again("- - tls: certificate and key kept as they were: tls: " + file("key.pem") + ": ");
  EXPECT_TRUE(HttpClient(served.port(), made_.certificate).secured());
  write("key.pem", renewed.key);
  read_again("- - tls: certificate and key read again");
  HttpClient after(served.port(), renewed.certificate);
  ASSERT_TRUE(after.secured());
  EXPECT_EQ(after.post(kChat, call(""))->status, 200);
  EXPECT_EQ(before.get("/health")->status, 200);
  EXPECT_FALSE(HttpClient(served.port(), made_.certificate).secured());
  write("cert.pem", "");
  read_again("- - tls: certificate and key kept as they were: tls: " + file("cert.pem") + ": ");
  EXPECT_TRUE(HttpClient(served.port(), renewed.certificate).secured());
}

TEST_F(Tls, ACertificateThatCannotBeUsedIsNamed) {
  write("empty.pem", "");
  write("other.pem", make_self_signed().key);
  const auto starts = [](const std::string& text, const std::string& with) {
    EXPECT_EQ(text.substr(0, with.size()), with);
    EXPECT_EQ(text.find('\n'), std::string::npos);
  };
  starts(refusal("none.pem", "key.pem"), file("none.pem") + ": ");
  starts(refusal("cert.pem", "none.pem"), file("none.pem") + ": ");
  starts(refusal("empty.pem", "key.pem"),
         "tls: " + file("empty.pem") + ": wanted certificates in PEM, found: ");
  starts(refusal("cert.pem", "empty.pem"), "tls: " + file("empty.pem") +
                                               ": wanted the certificate's key in PEM, without a "
                                               "password, found: ");
  starts(refusal("cert.pem", "other.pem"), "tls: " + file("other.pem") +
                                               ": wanted the certificate's key in PEM, without a "
                                               "password, found: ");
}

}  // namespace
}  // namespace fathom
