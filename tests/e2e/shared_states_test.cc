// Goal: a second server goes on with the sessions of one that was killed without replaying a row;
// where the server that holds the states is killed, empty, slow or answers garbage, it replays,
// with the same tokens, and nobody waits for longer than the bound. Method: the built program, a
// real redis-server and a proxy that spoils what it says.
#include <map>

#include "cache/remote/redis_testing.h"
#include "session_server.h"

namespace fathom {
namespace {

constexpr int kSessions = 3;
constexpr double kWindowsS = 0.2;  // --windows-ms

class SharedStates : public SessionServer {
 protected:
  void SetUp() override {
    if (redis_program().empty()) GTEST_SKIP() << "redis-server is not installed";
    redis_ = std::make_unique<RedisServer>();
    proxy_ = std::make_unique<TcpProxy>(redis_->port());
  }

  std::vector<std::string> with_states() const {
    return {"--store", store(), "--windows", proxy_->url() + "/1", "--windows-ms", "200"};
  }

  // Its blocks are durable, its states with the other server; then it is killed.
  std::vector<Turn> first_turns_and_kill(int n_sessions) {
    std::vector<Turn> turns;
    const Outcome outcome = serve(with_states(), [&](int port, pid_t server) {
      int64_t n_blocks = 0;
      for (int i = 0; i < n_sessions; ++i) {
        turns.push_back(ask(port, opening(i)));
        n_blocks += full_blocks(turns.back());
        EXPECT_EQ(turns.back().replayed_tokens, 0);
      }
      wait_for_blocks(port, static_cast<double>(n_blocks));
      // Of each session the prompt's and the answer's.
      wait_for(port, "fathom_shared_states_puts_total", "\"kept\"", 2.0 * n_sessions);
      ::kill(server, SIGKILL);
    });
    EXPECT_EQ(outcome.status, 128 + SIGKILL) << outcome.err;
    return turns;
  }

  std::vector<Turn> alone(const std::vector<Turn>& first) {
    std::vector<Turn> turns;
    serve({}, [&](int port, pid_t) {
      for (const Turn& turn : first) turns.push_back(ask(port, next_prompt(turn)));
    });
    return turns;
  }

  static double finds(int port, const std::string& result) {
    return metric(port, "fathom_shared_states_finds_total", "\"" + result + "\"");
  }

  std::unique_ptr<RedisServer> redis_;
  std::unique_ptr<TcpProxy> proxy_;
};

TEST_F(SharedStates, AnotherServerGoesOnWithoutReplayWithTheSameTokens) {
  const std::vector<Turn> first = first_turns_and_kill(kSessions);
  ASSERT_EQ(first.size(), static_cast<size_t>(kSessions));
  std::vector<Turn> again;
  serve(with_states(), [&](int port, pid_t) {
    for (const Turn& turn : first) again.push_back(ask(port, next_prompt(turn)));
    EXPECT_EQ(finds(port, "hit"), kSessions);
    EXPECT_EQ(metric(port, "fathom_fetched_states_total", ""), kSessions);
  });
  const std::vector<Turn> want = alone(first);
  ASSERT_EQ(again.size(), first.size());
  ASSERT_EQ(want.size(), first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(again[i].replayed_tokens, 0) << i;
    EXPECT_GE(again[i].cached_tokens, full_blocks(first[i]) * 64) << i;
    // Not a row of the first turn is computed again but where its tokens were cut otherwise.
    EXPECT_GE(again[i].cached_tokens, first[i].prompt_tokens - 1) << i;
    EXPECT_EQ(again[i].choice, want[i].choice) << i;
  }
}

// Blocks through a folder that both have, states through the other server; both serve at once.
TEST_F(SharedStates, TwoServersTakeTurnsOfOneSession) {
  mode_ = "deploy";
  restore_ = "bounded";
  const std::vector<std::string> shared = {"--shared",    folder() + "/shared", "--windows",
                                           redis_->url(), "--windows-ms",       "2000"};
  std::vector<Turn> turns;
  serve(shared, [&](int first, pid_t) {
    turns.push_back(ask(first, opening(1)));
    const std::string out = folder() + "/out2";
    serve_into(out, shared, [&](int second, pid_t) {
      for (int i = 0; i < 4; ++i) {
        const Turn& last = turns.back();
        const int before = i % 2 == 0 ? first : second;
        const int port = i % 2 == 0 ? second : first;
        wait_for(before, "fathom_shared_states_puts_total", "\"kept\"", 2.0 + i / 2 * 2);
        wait_for(port, "fathom_tier_blocks", "shared", static_cast<double>(full_blocks(last)));
        // More than a block each: what a server has of its own is no longer of use.
        const int64_t n_known = last.prompt_tokens - 1;
        turns.push_back(ask(port, next_prompt(last) + opening(10 + i).substr(0, 180)));
        EXPECT_EQ(turns.back().replayed_tokens, 0) << i;
        EXPECT_GE(turns.back().cached_tokens, n_known) << i;
      }
      EXPECT_EQ(finds(first, "hit") + finds(second, "hit"), 4);
    });
  });
  std::vector<Turn> want;
  serve({}, [&](int port, pid_t) {
    for (const Turn& turn : turns) want.push_back(ask(port, turn.prompt));
  });
  ASSERT_EQ(turns.size(), 5U);
  ASSERT_EQ(want.size(), turns.size());
  for (size_t i = 0; i < turns.size(); ++i) EXPECT_EQ(turns[i].choice, want[i].choice) << i;
}

TEST_F(SharedStates, WhateverTheServerDoesSessionsGoOnWithTheSameTokens) {
  mode_ = "deploy";
  const std::vector<std::string> kinds = {"sound", "slow", "garbage", "flip", "killed", "empty"};
  const std::vector<Turn> first = first_turns_and_kill(static_cast<int>(kinds.size()));
  ASSERT_EQ(first.size(), kinds.size());
  std::vector<Turn> again;
  const Outcome outcome = serve(with_states(), [&](int port, pid_t) {
    double n_asked = 0;
    for (size_t i = 0; i < kinds.size(); ++i) {
      SCOPED_TRACE(kinds[i]);
      const std::map<std::string, ProxyMode> modes = {
          {"slow", ProxyMode::kSlow}, {"garbage", ProxyMode::kGarbage}, {"flip", ProxyMode::kFlip}};
      const auto mode = modes.find(kinds[i]);
      proxy_->set_mode(mode == modes.end() ? ProxyMode::kPass : mode->second);
      if (kinds[i] == "killed") redis_->stop();
      EXPECT_TRUE(kinds[i] != "empty" || redis_->start());
      again.push_back(ask(port, next_prompt(first[i])));
      ++n_asked;
      EXPECT_EQ(again[i].replayed_tokens == 0, kinds[i] == "sound");
      const double n_counted = finds(port, "hit") + finds(port, "missing") + finds(port, "failed") +
                               finds(port, "paused");
      EXPECT_EQ(finds(port, "hit"), 1);
      // A find that the engine gave up may not have ended yet.
      EXPECT_GE(n_counted + metric(port, "fathom_late_fetches_total", ""), n_asked);
    }
    // By the engine's clock; a tick late at most.
    const double n_fetches = metric(port, "fathom_fetches_total", "");
    EXPECT_LE(metric(port, "fathom_fetch_seconds_total", ""), n_fetches * (kWindowsS + 0.1));
    EXPECT_GE(n_fetches, 2);
  });
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const std::vector<Turn> want = alone(first);
  ASSERT_EQ(again.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(again[i].choice, want[i].choice) << kinds[i];
}

}  // namespace
}  // namespace fathom
