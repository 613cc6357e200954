#pragma once

// Clients of several tenants who do to a server what people do: fresh prompts, turns of
// conversations, streams that are left in the middle, requests that are refused, looks at figures;
// and questions that were asked before, whose answers must be the same.

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

namespace fathom {

struct MixedCounts {
  std::atomic<int64_t> prompts = 0;
  std::atomic<int64_t> turns = 0;
  std::atomic<int64_t> repeats = 0;  // of a question, beyond its first time
  std::atomic<int64_t> cancels = 0;
  std::atomic<int64_t> bad_requests = 0;
  std::atomic<int64_t> looks = 0;
  std::atomic<int64_t> busy = 0;    // told to come back later
  std::atomic<int64_t> failed = 0;  // any other status than wanted, or none
  std::atomic<int64_t> wrong = 0;   // repeats with another answer
};

class MixedLoad {
 public:
  MixedLoad(int port, std::vector<std::string> keys) : port_(port), keys_(std::move(keys)) {}

  // One client, of the tenant of key `number % keys`; until it is told to stop. From any thread.
  void run(int number, const std::stop_token& stop);

  const MixedCounts& counts() const { return counts_; }
  std::string first_fault() const;

 private:
  struct Client;

  // The answer's text; counts what is none.
  std::string complete(Client& client, const std::string& prompt, int n_tokens);
  void fault(const std::string& what);
  void prompt(Client& client);
  void turn(Client& client);
  void repeat(Client& client);
  void cancel(Client& client);
  void ask_badly(Client& client);
  void look(Client& client);

  const int port_;
  const std::vector<std::string> keys_;
  MixedCounts counts_;
  mutable std::mutex mutex_;
  std::string first_fault_;
  std::map<std::string, std::string> answers_;  // of questions
};

}  // namespace fathom
