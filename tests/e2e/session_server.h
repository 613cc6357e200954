#pragma once

// A server as a process of its own, and turns of sessions that are asked of it.

#include <gtest/gtest.h>
#include <signal.h>

#include <boost/json.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <thread>

#include "../serve/http_client.h"
#include "base/folder_testing.h"
#include "program.h"

namespace fathom {

namespace json = boost::json;

inline std::string text_of(const std::string& path) {
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

// Turns of sessions, asked of the program.
class SessionServer : public FolderTest {
 protected:
  SessionServer() { std::filesystem::create_directories(folder_); }

  std::string store() const { return folder() + "/store"; }

  using Use = std::function<void(int port, pid_t server)>;
  // Ends the server with SIGTERM where `use` has not ended it.
  Outcome serve(const std::vector<std::string>& more, const Use& use) {
    return serve_into(folder() + "/out", more, use);
  }
  // The same; its output goes to that file.
  Outcome serve_into(const std::string& out, const std::vector<std::string>& more, const Use& use) {
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

  static void wait_for(int port, const std::string& name, const std::string& label, double n) {
    for (int i = 0; i < 3000 && metric(port, name, label) < n; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_GE(metric(port, name, label), n) << name;
  }

  // Blocks are found once they are durable; the writer takes a moment.
  static void wait_for_blocks(int port, double n) {
    wait_for(port, "fathom_tier_blocks", "disk", n);
  }

  // The last token of an answer is never computed.
  static int64_t full_blocks(const Turn& turn) {
    return (turn.prompt_tokens + turn.answer_tokens - 1) / 64;
  }

  bool sealed_ = false;
  std::string mode_ = "exact";
  std::string restore_ = "exact";
};

}  // namespace fathom
