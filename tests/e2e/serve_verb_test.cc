// Goal: `fathom serve` says where it listens and whether anybody may use it, ends well at ctrl-C,
// makes keys, and refuses an address, keys or certificates that are none. Method: the built program
// in a terminal. What it serves: tests/serve.
#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <regex>

#include "base/folder_testing.h"

#include "program.h"

namespace fathom {
namespace {

// Sends the bytes to a port of this machine, and reads until the other side ends.
void ask(int port, const std::string& bytes) {
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  char answer[4096];
  while (::recv(connection, answer, sizeof(answer), 0) > 0) {
  }
  ::close(connection);
}

TEST(ServeVerb, SaysWhereItListensAndEndsAtCtrlC) {
  bool stopped = false;
  const Outcome outcome = run_in_terminal(
      {"serve", "--listen", "localhost:0", "--sequences", "2", "--context", "256", "--quiet"},
      [&](const std::string& shown) -> std::string {
        if (stopped || shown.find("fathom-34m at http://127.0.0.1:") == std::string::npos)
          return "";
        stopped = true;
        return "\x03";
      });
  EXPECT_TRUE(stopped) << outcome.out;
  EXPECT_EQ(outcome.status, 0) << outcome.out;
}

TEST(ServeVerb, RefusesAnAddressThatIsNone) {
  const Outcome no_port = run_program({.args = {"serve", "--listen", "127.0.0.1"}});
  EXPECT_EQ(no_port.status, 2);
  const std::string wanted =
      "fathom: usage: --listen: wanted HOST:PORT with a port of 0 to 65535, found ";
  EXPECT_EQ(no_port.err, wanted + "127.0.0.1; see fathom serve --help\n");
  const Outcome high_port = run_program({.args = {"serve", "--listen", "127.0.0.1:65536"}});
  EXPECT_EQ(high_port.err, wanted + "127.0.0.1:65536; see fathom serve --help\n");
  for (const char* host : {"nowhere", "::1", "[127.0.0.1]", "256.1.1.1", "[]"}) {
    const Outcome no_host = run_program({.args = {"serve", "--listen", std::string(host) + ":0"}});
    EXPECT_EQ(no_host.status, 2);
    EXPECT_EQ(
        no_host.err,
        "fathom: usage: --listen: wanted an IP address, IPv6 in brackets, or localhost, found \"" +
            std::string(host) + "\"; see fathom serve --help\n");
  }
}

TEST(ServeVerb, WarnsWhereAnybodyMayUseIt) {
  bool stopped = false;
  const Outcome outcome = run_in_terminal(
      {"serve", "--listen", "0.0.0.0:0", "--sequences", "1", "--context", "256", "--quiet"},
      [&](const std::string& shown) -> std::string {
        if (stopped || shown.find(" at http://") == std::string::npos) return "";
        stopped = true;
        return "\x03";
      });
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_NE(outcome.out.find("fathom: note: listens on 0.0.0.0 without keys: "), std::string::npos);
}

// Of the log, whose lines a terminal shows too.
TEST(ServeVerb, LogsWithTheTimeOfDay) {
  bool stopped = false;
  const Outcome outcome = run_in_terminal(
      {"serve", "--listen", "127.0.0.1:0", "--sequences", "1", "--context", "256", "--connections",
       "9", "--body-bytes", "1M", "--idle-s", "5"},
      [&](const std::string& shown) -> std::string {
        const size_t at = shown.find(" at http://127.0.0.1:");
        if (stopped || at == std::string::npos || shown.find('\n', at) == std::string::npos) {
          return "";
        }
        stopped = true;
        const int port = std::stoi(shown.substr(at + 21));
        ask(port, "GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        return "\x03";
      });
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  const std::regex line(
      "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3}Z GET \"/nowhere\" 404 "
      "peer=127\\.0\\.0\\.1:[0-9]+ id=req_[0-9a-f]+: path: wanted a route");
  EXPECT_TRUE(std::regex_search(outcome.out, line)) << outcome.out;
}

TEST(ServeVerb, MakesAKey) {
  const Outcome made = run_program({.args = {"serve", "--new-key", "alice"}});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_TRUE(made.err.starts_with("sk-fathom-")) << made.err;
  EXPECT_EQ(std::count(made.err.begin(), made.err.end(), '\n'), 1);
  EXPECT_TRUE(made.out.starts_with("[[key]]\nname = \"alice\"\nsha256 = \"")) << made.out;
  EXPECT_EQ(made.out.find("sk-fathom-"), std::string::npos);
  const Outcome watcher = run_program({.args = {"serve", "--new-key", "watch", "--role", "metrics",
                                                "--requests-per-minute", "60"}});
  EXPECT_TRUE(watcher.out.ends_with("\nrole = \"metrics\"\nrequests_per_minute = 60\n"))
      << watcher.out;
  const Outcome refused = run_program({.args = {"serve", "--new-key", "a b"}});
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(
      refused.err,
      "fathom: usage: --new-key: name: wanted 1 to 64 letters, digits, '.', '_' or '-', found "
      "\"a b\"; see fathom serve --help\n");
  const Outcome served = run_program({.args = {"serve", "--new-key", "a", "--listen", "[::1]:0"}});
  EXPECT_EQ(served.status, 2);
  EXPECT_EQ(served.err,
            "fathom: usage: --listen: wanted it without --new-key, which serves nothing, found "
            "both; see fathom serve --help\n");
}

class ServeVerbFiles : public FolderTest {
 protected:
  std::string error_of(const std::vector<std::string>& more) {
    std::vector<std::string> args = {"serve",     "--listen", "127.0.0.1:0",
                                     "--context", "256",      "--quiet"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = run_program({.args = args});
    EXPECT_EQ(outcome.status, 1);
    return outcome.err;
  }
};

TEST_F(ServeVerbFiles, RefusesKeysAndCertificatesThatAreNone) {
  std::filesystem::create_directories(folder_);
  const std::string keys = folder() + "/keys.toml";
  std::ofstream(keys) << "[[key]]\nname = \"a\"\n";
  EXPECT_EQ(error_of({"--keys", keys}),
            "fathom: " + keys + ": line 1: sha256: wanted it, found none\n");
  for (const char* alone : {"--tls-cert", "--tls-key"}) {
    const Outcome outcome = run_program({.args = {"serve", alone, keys}});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.err,
              "fathom: usage: --tls-cert, --tls-key: wanted both or none, found one; see fathom "
              "serve --help\n");
  }
  const std::string bad = error_of({"--tls-cert", keys, "--tls-key", keys});
  EXPECT_NE(bad.find("fathom: tls: " + keys + ": wanted certificates in PEM, found: "),
            std::string::npos);
  EXPECT_EQ(std::count(bad.begin(), bad.end(), '\n'), 1);
  ASSERT_EQ(::setenv("FATHOM_API_KEY", "short", 1), 0);
  EXPECT_EQ(error_of({}), "fathom: FATHOM_API_KEY: wanted a key of at least 16 bytes, found 5\n");
  ASSERT_EQ(::setenv("FATHOM_API_KEY", "", 1), 0);
  EXPECT_EQ(error_of({}),
            "fathom: FATHOM_API_KEY: wanted a key or no such variable, found it set and empty\n");
  ASSERT_EQ(::unsetenv("FATHOM_API_KEY"), 0);
}

TEST_F(ServeVerbFiles, WhatANewKeyPrintsIsAFileOfKeys) {
  std::filesystem::create_directories(folder_);
  const std::string keys = folder() + "/keys.toml";
  for (const char* name : {"alice", "bob"}) {
    const Outcome made =
        run_program({.args = {"serve", "--new-key", name, "--role", "admin", "--tokens-per-minute",
                              "9", "--concurrent-requests", "2"}});
    std::ofstream(keys, std::ios::app) << made.out;
  }
  // What comes after the keys are read is what fails.
  EXPECT_EQ(error_of({"--keys", keys, "-m", "/no/such"}).find("keys.toml"), std::string::npos);
}

}  // namespace
}  // namespace fathom
