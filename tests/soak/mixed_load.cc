#include "mixed_load.h"

#include <boost/json.hpp>
#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "../serve/http_client.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr int kQuestions = 40;
constexpr size_t kHistoryBytes = 1600;  // of a conversation, then another one begins

std::string words(std::mt19937_64& random, int n) {
  constexpr std::array<const char*, 16> kWords = {
      "river", "stone", "cloud",   "seven",  "lamp",  "north", "glass",  "wheat",
      "the",   "of",    "harbour", "signal", "after", "an",    "return", "list"};
  std::string text;
  for (int i = 0; i < n; ++i) text += std::string(" ") + kWords[random() % kWords.size()];
  return text;
}

std::string question(int number) {
  std::mt19937_64 random(static_cast<uint64_t>(number % 8));
  std::string text = "A text that several ask about." + words(random, 60);
  std::mt19937_64 own(static_cast<uint64_t>(1000 + number));
  return text + " Question " + std::to_string(number) + ":" + words(own, 5 + number);
}

std::string body_of(const std::string& prompt, int n_tokens, bool stream) {
  return json::serialize(json::object{
      {"prompt", prompt}, {"max_tokens", n_tokens}, {"temperature", 0}, {"stream", stream}});
}

}  // namespace

struct MixedLoad::Client {
  Client(int number, const std::string& key)
      : random(static_cast<uint64_t>(number) + 1),
        authorization("Authorization: Bearer " + key + "\r\n") {}

  std::mt19937_64 random;
  std::string authorization;
  std::string history;
  std::unique_ptr<HttpClient> connection;
};

std::string MixedLoad::first_fault() const {
  const std::lock_guard lock(mutex_);
  return first_fault_;
}

void MixedLoad::fault(const std::string& what) {
  ++counts_.failed;
  const std::lock_guard lock(mutex_);
  if (first_fault_.empty()) first_fault_ = what;
}

void MixedLoad::run(int number, const std::stop_token& stop) {
  Client client(number, keys_[static_cast<size_t>(number) % keys_.size()]);
  while (!stop.stop_requested()) {
    // A connection serves some requests, then another one is opened.
    if (!client.connection || client.random() % 10 == 0) {
      client.connection = std::make_unique<HttpClient>(port_);
      client.connection->always_send(client.authorization);
    }
    const uint64_t kind = client.random() % 100;
    if (kind < 35) {
      turn(client);
    } else if (kind < 60) {
      prompt(client);
    } else if (kind < 75) {
      repeat(client);
    } else if (kind < 90) {
      cancel(client);
    } else if (kind < 95) {
      ask_badly(client);
    } else {
      look(client);
    }
  }
}

std::string MixedLoad::complete(Client& client, const std::string& prompt, int n_tokens) {
  const auto reply = client.connection->post("/v1/completions", body_of(prompt, n_tokens, false));
  if (!reply) {
    client.connection.reset();
    fault("a completion: no answer");
    return "";
  }
  if (reply->status == 429 || reply->status == 503) {
    ++counts_.busy;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return "";
  }
  if (reply->status != 200) {
    fault("a completion: status " + std::to_string(reply->status) + ": " + reply->body);
    return "";
  }
  return std::string(json::parse(reply->body).at("choices").at(0).at("text").as_string());
}

void MixedLoad::prompt(Client& client) {
  const auto n_words = static_cast<int>(20 + client.random() % 300);
  complete(client, "Fresh " + std::to_string(client.random()) + words(client.random, n_words),
           static_cast<int>(1 + client.random() % 4));
  ++counts_.prompts;
}

void MixedLoad::turn(Client& client) {
  if (client.history.empty() || client.history.size() > kHistoryBytes) {
    client.history =
        "Conversation " + std::to_string(client.random()) + "." + words(client.random, 30);
  }
  client.history += " And then" + words(client.random, 8) + ":";
  client.history += complete(client, client.history, 6);
  ++counts_.turns;
}

void MixedLoad::repeat(Client& client) {
  const std::string asked = question(static_cast<int>(client.random() % kQuestions));
  const std::string answer = complete(client, asked, 8);
  if (answer.empty()) return;
  const std::lock_guard lock(mutex_);
  const auto [known, is_first] = answers_.emplace(asked, answer);
  counts_.repeats += is_first ? 0 : 1;
  counts_.wrong += known->second == answer ? 0 : 1;
}

void MixedLoad::cancel(Client& client) {
  HttpClient leaves(port_);
  const std::string asked = client.random() % 2 == 0
                                ? question(static_cast<int>(client.random() % kQuestions))
                                : "Left " + words(client.random, 100);
  leaves.send(post_text("/v1/completions", body_of(asked, 60, true), client.authorization));
  if (client.random() % 2 == 0) leaves.read_until("data: ");
  std::this_thread::sleep_for(std::chrono::milliseconds(client.random() % 200));
  ++counts_.cancels;
}

void MixedLoad::ask_badly(Client& client) {
  const auto reply = client.connection->post("/v1/completions", R"({"prompt": 3, "max_tokens": )");
  if (!reply || reply->status != 400) fault("a body that is no JSON: not refused with 400");
  if (!reply) client.connection.reset();
  ++counts_.bad_requests;
}

void MixedLoad::look(Client& client) {
  const auto reply = client.connection->get(client.random() % 2 == 0 ? "/v1/models" : "/health");
  if (!reply || reply->status != 200) {
    fault("a look: " + (reply ? "status " + std::to_string(reply->status) : "no answer"));
  }
  if (!reply) client.connection.reset();
  ++counts_.looks;
}

}  // namespace fathom
