// Goal: a server that was killed goes on with its sessions from its store: the same tokens and log
// probabilities as without one, every full block read and not computed; damaged blocks are computed
// again; a store of another model is refused and left alone. Method: the built program, killed at
// once while a request runs; a server without a store says what the answers are.
#include <gtest/gtest.h>
#include <signal.h>

#include <boost/json.hpp>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <thread>

#include "../serve/http_client.h"
#include "base/folder_testing.h"
#include "program.h"

namespace fathom {
namespace {

namespace json = boost::json;

#ifndef FATHOM_SESSIONS
#define FATHOM_SESSIONS 5
#endif

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// What a turn of a session came to.
struct Turn {
  std::string prompt;
  std::string answer;
  json::value choice;  // with its log probabilities
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;
  int64_t cached_tokens = 0;  // whose entries were there, replayed ones among them
  int64_t replayed_tokens = 0;
};

class StoreRestart : public FolderTest {
 protected:
  StoreRestart() { std::filesystem::create_directories(folder_); }

  std::string store() const { return folder() + "/store"; }

  using Use = std::function<void(int port, pid_t server)>;
  // Ends the server with SIGTERM where `use` has not ended it.
  Outcome serve(const std::vector<std::string>& more, const Use& use) {
    const std::string out = folder() + "/out";
    std::ofstream(out).flush();
    std::vector<std::string> args = {"serve",  "--listen",    "127.0.0.1:0", "--context",
                                     "768",    "--sequences", "2",           "--quiet",
                                     "--mode", mode_,         "--restore",   restore_};
    args.insert(args.end(), more.begin(), more.end());
    return run_program({.args = args, .output_path = out, .meanwhile = [&](pid_t server) {
                          const int port = port_of(out);
                          ASSERT_GT(port, 0);
                          use(port, server);
                          ::kill(server, SIGTERM);
                        }});
  }
  std::vector<std::string> with_store() const {
    if (!sealed_) return {"--store", store()};
    const std::string key = folder() + "/key";
    std::ofstream(key) << std::string(64, '7');
    return {"--store", store(), "--store-key", key};
  }

  static int port_of(const std::string& out) {
    for (int i = 0; i < 6000; ++i) {
      const std::string shown = text_of(out);
      const size_t at = shown.find("http://127.0.0.1:");
      if (shown.ends_with("\n") && at != std::string::npos) return std::stoi(shown.substr(at + 17));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return 0;
  }

  // A text that no other session begins with.
  static std::string opening(int session) {
    std::mt19937 random(static_cast<uint32_t>(session));
    const std::vector<std::string> words = {"river", "stone", "cloud", "seven",  "lamp",
                                            "north", "glass", "wheat", "signal", "harbour"};
    std::string text = "Session " + std::to_string(session) + ".";
    for (int i = 0; i < 60 + session * 37 % 90; ++i) text += " " + words[random() % words.size()];
    return text;
  }

  static std::string body_of(const std::string& prompt, int n_tokens) {
    return json::serialize(json::object{
        {"prompt", prompt}, {"max_tokens", n_tokens}, {"temperature", 0}, {"logprobs", 2}});
  }

  static Turn ask(int port, const std::string& prompt) {
    const auto reply = HttpClient(port).post("/v1/completions", body_of(prompt, 6));
    EXPECT_TRUE(reply && reply->status == 200) << (reply ? reply->body : "no answer");
    if (!reply || reply->status != 200) return {.prompt = prompt};
    const json::value body = json::parse(reply->body);
    const json::value& usage = body.at("usage");
    const json::value& choice = body.at("choices").at(0);
    const int64_t n_skipped = usage.at("prompt_tokens_details").at("cached_tokens").as_int64();
    const int64_t n_replayed = body.at("fathom").at("replayed_tokens").as_int64();
    return {.prompt = prompt,
            .answer = std::string(choice.at("text").as_string()),
            .choice = choice,
            .prompt_tokens = usage.at("prompt_tokens").as_int64(),
            .answer_tokens = usage.at("completion_tokens").as_int64(),
            .cached_tokens = n_skipped + n_replayed,
            .replayed_tokens = n_replayed};
  }

  static std::string next_prompt(const Turn& turn) {
    return turn.prompt + turn.answer + " And then";
  }

  // The first sample of that family with these labels.
  static double metric(int port, const std::string& name, const std::string& label) {
    const std::string text = HttpClient(port).get("/metrics")->body;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(name + "{") || line.find(label) == std::string::npos) continue;
      return std::stod(line.substr(line.rfind(' ') + 1));
    }
    return -1;
  }

  // Blocks are found once they are durable; the writer takes a moment.
  static void wait_for_blocks(int port, double n) {
    for (int i = 0; i < 3000 && metric(port, "fathom_tier_blocks", "disk") < n; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_GE(metric(port, "fathom_tier_blocks", "disk"), n);
  }

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

  // The last token of an answer is never computed.
  static int64_t full_blocks(const Turn& turn) {
    return (turn.prompt_tokens + turn.answer_tokens - 1) / 64;
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

  bool sealed_ = false;
  std::string mode_ = "exact";
  std::string restore_ = "exact";

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
