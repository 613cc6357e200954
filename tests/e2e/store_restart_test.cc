// Goal: a server that was killed goes on with its sessions from its store: the same tokens and log
// probabilities as without one, every full block read and not computed; damaged blocks are computed
// again; a store of another model is refused and left alone. Method: the built program, killed at
// once while a request runs; a server without a store says what the answers are.
#include <algorithm>
#include <cmath>

#include "base/small_disk_testing.h"
#include "session_server.h"

namespace fathom {
namespace {

#ifndef FATHOM_SESSIONS
#define FATHOM_SESSIONS 5
#endif

class StoreRestart : public SessionServer {
 protected:
  // A first turn of each session, then a kill while another request runs.
  std::vector<Turn> first_turns_and_kill() {
    std::vector<Turn> turns;
    const Outcome outcome = serve(with_store(), [&](int port, pid_t server) {
      int64_t n_blocks = 0;
      for (int i = 0; i < FATHOM_SESSIONS; ++i) {
        turns.push_back(ask(port, opening(i)));
        n_blocks += full_blocks(turns.back());
      }
      wait_for_blocks(port, static_cast<double>(n_blocks));
      HttpClient running(port);
      running.send(post_text("/v1/completions", body_of(opening(999), 200)));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ::kill(server, SIGKILL);
    });
    EXPECT_EQ(outcome.status, 128 + SIGKILL) << outcome.err;
    return turns;
  }

  std::vector<Turn> second_turns(
      const std::vector<std::string>& more, const std::vector<Turn>& first,
      const Use& then = [](int, pid_t) {}) {
    std::vector<Turn> turns;
    const Outcome outcome = serve(more, [&](int port, pid_t server) {
      for (const Turn& turn : first) turns.push_back(ask(port, next_prompt(turn)));
      then(port, server);
    });
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return turns;
  }

  std::string segment() const {
    for (const auto& entry : std::filesystem::directory_iterator(store())) {
      if (entry.path().filename().string().starts_with("seg-")) return entry.path().string();
    }
    return "";
  }
};

TEST_F(StoreRestart, SessionsGoOnAfterAKillWithTheSameTokens) {
  const std::vector<Turn> first = first_turns_and_kill();
  ASSERT_EQ(first.size(), static_cast<size_t>(FATHOM_SESSIONS));
  double n_restored = 0;
  const std::vector<Turn> again = second_turns(with_store(), first, [&](int port, pid_t) {
    n_restored = metric(port, "fathom_restored_tokens_total", "");
    EXPECT_EQ(metric(port, "fathom_tier_reads_total", "\"bad\""), 0);
  });
  const std::vector<Turn> alone = second_turns({}, first);
  ASSERT_EQ(again.size(), first.size());
  ASSERT_EQ(alone.size(), first.size());
  int64_t n_full = 0;
  int64_t n_cached = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(again[i].choice, alone[i].choice) << i;
    EXPECT_EQ(alone[i].cached_tokens, 0);
    n_full += full_blocks(first[i]) * 64;
    n_cached += again[i].cached_tokens;
  }
  EXPECT_GE(static_cast<double>(n_cached), 0.99 * static_cast<double>(n_full));
  EXPECT_EQ(n_restored, static_cast<double>(n_cached));
  RecordProperty("full_tokens", std::to_string(n_full));
  RecordProperty("cached_tokens", std::to_string(n_cached));
}

// Each turn in a process of its own, which is killed once its blocks are safe; the store is sealed.
TEST_F(StoreRestart, InTheBoundedModeATurnCostsItsTokensAndAWindowAfterEachKill) {
  constexpr int64_t kWindow = 64;  // of the shipped model
  sealed_ = true;
  mode_ = "deploy";
  restore_ = "bounded";
  std::vector<Turn> turns;
  for (int i = 0; i < 3; ++i) turns.push_back({.prompt = opening(i)});
  for (int round = 0; round < 3; ++round) {
    serve(with_store(), [&](int port, pid_t server) {
      int64_t n_blocks = 0;
      for (Turn& turn : turns) {
        const Turn last = turn;
        turn =
            ask(port, round == 0 ? turn.prompt : next_prompt(turn) + opening(round).substr(0, 250));
        n_blocks += full_blocks(turn);
        if (round == 0) continue;
        const int64_t n_known = last.prompt_tokens + last.answer_tokens;
        const int64_t n_new = turn.prompt_tokens - n_known;
        const int64_t n_computed = turn.prompt_tokens - turn.cached_tokens;
        EXPECT_GE(turn.cached_tokens, full_blocks(last) * 64) << round;
        EXPECT_LE(static_cast<double>(n_computed + turn.replayed_tokens),
                  1.05 * static_cast<double>(n_new) + kWindow + 63)
            << round;
      }
      wait_for_blocks(port, static_cast<double>(n_blocks));
      ::kill(server, SIGKILL);
    });
  }
  const Outcome refused =
      run_program({.args = {"serve", "--listen", "127.0.0.1:0", "--quiet", "--store", store()}});
  EXPECT_EQ(refused.status, 1);
  EXPECT_EQ(refused.err, "fathom: " + store() +
                             "/store.fathom: wanted the key that it is sealed with, found none\n");
}

TEST_F(StoreRestart, DamagedBlocksAreComputedAgain) {
  const std::vector<Turn> first = first_turns_and_kill();
  ASSERT_FALSE(first.empty());
  // A bit of every second page behind the segment's own.
  const std::string path = segment();
  std::string bytes = text_of(path);
  std::mt19937 random(1);
  for (size_t page = 1; page < bytes.size() / 4096; page += 2) {
    bytes[page * 4096 + random() % 4096] ^= static_cast<char>(1U << random() % 8);
  }
  std::ofstream(path, std::ios::binary) << bytes;
  double n_bad = 0;
  const std::vector<Turn> again = second_turns(with_store(), first, [&](int port, pid_t) {
    n_bad = metric(port, "fathom_tier_reads_total", "\"bad\"");
  });
  const std::vector<Turn> alone = second_turns({}, first);
  ASSERT_EQ(again.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(again[i].choice, alone[i].choice) << i;
  EXPECT_GT(n_bad, 0);
}

TEST_F(StoreRestart, OnADiskThatIsFullServingGoesOn) {
  const std::string disk = folder() + "/disk";
  const SmallDisk small(disk, int64_t{64} << 20);
  if (!small.mounted()) GTEST_SKIP() << "this user may not mount";
  {
    // Somebody else's, all but the room for some blocks.
    std::ofstream other(disk + "/other", std::ios::binary);
    const std::string page(4096, 'x');
    while (std::filesystem::space(disk).available > 130'000) other << page << std::flush;
  }
  std::vector<Turn> first;
  for (int i = 0; i < 8; ++i) first.push_back({.prompt = opening(i)});
  double n_failed = 0;
  const std::vector<Turn> full =
      second_turns({"--store", disk + "/store"}, first, [&](int port, pid_t) {
        n_failed = metric(port, "fathom_tier_puts_total", "result=\"failed\"");
        EXPECT_GT(metric(port, "fathom_tier_puts_total", "result=\"kept\""), 0);
        EXPECT_EQ(metric(port, "fathom_tier_reads_total", "\"bad\""), 0);
      });
  EXPECT_GT(n_failed, 0);  // it was full
  const std::vector<Turn> alone = second_turns({}, first);
  ASSERT_EQ(full.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(full[i].choice, alone[i].choice) << i;
  // What was kept before is of use after.
  const std::vector<Turn> again = second_turns(
      {"--store", disk + "/store"}, first,
      [&](int port, pid_t) { EXPECT_GT(metric(port, "fathom_restored_tokens_total", ""), 0); });
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(again[i].choice, alone[i].choice) << i;
}

TEST_F(StoreRestart, AStoreOfAnotherModelIsRefusedAndLeftAlone) {
  serve(with_store(), [&](int port, pid_t) {
    ask(port, opening(1));
    wait_for_blocks(port, 1);
  });
  const std::string name = store() + "/store.fathom";
  std::string identity = text_of(name);
  const size_t at = identity.find("weights");
  ASSERT_NE(at, std::string::npos) << identity;
  char& digit = identity[identity.find_first_of("0123456789abcdef", at + 8)];
  digit = digit == '0' ? '1' : '0';
  std::ofstream(name) << identity;
  const std::string before = text_of(segment());
  const Outcome refused =
      run_program({.args = {"serve", "--listen", "127.0.0.1:0", "--quiet", "--store", store()}});
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(refused.err.starts_with("fathom: " + store())) << refused.err;
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1);
  EXPECT_EQ(text_of(segment()), before);
  EXPECT_EQ(text_of(name), identity);
}

}  // namespace
}  // namespace fathom
