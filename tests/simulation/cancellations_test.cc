// Goal: 10,000 requests that are cancelled at random instants leave nothing behind. Method: the
// threads of a server around an engine with the hash executor; four clients submit and cancel after
// a random while, for every other request the thread that delivers cancels at a random token. What
// was said is the beginning of what the prompt gets alone.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "engine/engine.h"
#include "hash_executor.h"
#include "serve/engine_host.h"

namespace fathom {
namespace {

constexpr int kClients = 4;
constexpr int kEach = 2500;
constexpr int64_t kLongestWaitUs = 400;

struct Sent {
  Request request;
  int64_t cancel_after = -1;  // tokens; -1: a client cancels
  std::map<int64_t, std::vector<int32_t>> said;
  std::map<int64_t, EndReason> ends;
};

class Cancellations : public testing::Test {
 protected:
  static Request request(std::mt19937& random, int client) {
    Request made = {.tenant = static_cast<TenantId>(client % 3),
                    .tenant_salt = std::to_string(client % 3),
                    .max_tokens = static_cast<int64_t>(40 + random() % 100)};
    const uint32_t n = 1 + random() % 250;
    for (uint32_t i = 0; i < n; ++i) made.prompt.push_back(static_cast<int32_t>(i % 50));
    made.prompt.push_back(static_cast<int32_t>(random() % 50));
    made.sampling.seed = random() % 100;
    made.n_choices = random() % 6 == 0 ? 2 : 1;
    return made;
  }

  // Under mutex_.
  void take(EngineHost& host, const Output& output) {
    Sent& sent = sent_[output.request];
    std::vector<int32_t>& said = sent.said[output.choice];
    for (const SampledToken& token : output.tokens) said.push_back(token.id);
    if (output.finish != EndReason::kNone) {
      EXPECT_TRUE(sent.ends.emplace(output.choice, output.finish).second);
    }
    if (sent.cancel_after < 0) return;
    if (static_cast<int64_t>(said.size()) >= sent.cancel_after) host.cancel(output.request);
  }

  void client(EngineHost& host, int c) {
    std::mt19937 random(static_cast<uint32_t>(c));
    for (int n = 0; n < kEach;) {
      Request made = request(random, c);
      const bool by_tokens = n % 2 == 0;
      std::optional<RequestId> id;
      {
        const std::lock_guard lock(mutex_);
        const Result<RequestId> taken = host.submit(made);
        if (taken) {
          id = *taken;
          Sent& sent = sent_[*taken];
          sent.request = std::move(made);
          if (by_tokens) sent.cancel_after = random() % 40;
        }
      }
      if (!id) {
        std::this_thread::yield();
        continue;
      }
      ++n;
      if (by_tokens) continue;
      const auto until =
          std::chrono::steady_clock::now() + std::chrono::microseconds(random() % kLongestWaitUs);
      while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
      host.cancel(*id);
    }
  }

  std::mutex mutex_;
  std::map<RequestId, Sent> sent_;
};

TEST_F(Cancellations, TenThousandAtRandomInstantsLeaveNothing) {
  const HashOptions hash = {.n_sequences = 4, .n_blocks = 32};
  HashExecutor executor(hash);
  EngineOptions options;
  options.mailbox = {.max_live = 12, .max_live_of_tenant = 12, .max_outputs = 8};
  options.max_unsent = 4;  // so that no answer runs far ahead of who cancels it
  options.sessions = {.max_bytes = 20'000};
  Engine engine(executor, options);
  {
    std::atomic<EngineHost*> place = nullptr;
    EngineHost host(engine, [&](const std::vector<Output>& outputs) {
      const std::lock_guard lock(mutex_);
      for (const Output& output : outputs) take(*place, output);
    });
    place = &host;
    std::array<std::thread, kClients> clients;
    for (int c = 0; c < kClients; ++c) {
      clients[static_cast<size_t>(c)] = std::thread([&, c] { client(host, c); });
    }
    for (std::thread& client : clients) client.join();
  }
  std::map<EndReason, int> ends;
  int n_midway = 0;
  ASSERT_EQ(sent_.size(), static_cast<size_t>(kClients * kEach));
  for (const auto& [id, sent] : sent_) {
    ASSERT_EQ(static_cast<int64_t>(sent.ends.size()), sent.request.n_choices);
    for (const auto& [choice, reason] : sent.ends) {
      const auto found = sent.said.find(choice);
      const std::vector<int32_t> said =
          found == sent.said.end() ? std::vector<int32_t>() : found->second;
      ++ends[reason];
      if (reason == EndReason::kCancelled && !said.empty()) ++n_midway;
      ASSERT_EQ(said, hash_answer(hash, sent.request.prompt, static_cast<int64_t>(said.size()),
                                  sent.request.sampling.seed + static_cast<uint64_t>(choice)));
    }
  }
  std::printf("cancelled %d, of them after a token %d, whole %d\n", ends[EndReason::kCancelled],
              n_midway, ends[EndReason::kLength]);
  EXPECT_GT(ends[EndReason::kCancelled], kClients * kEach / 2);
  EXPECT_GT(n_midway, kClients * kEach / 10);
  EXPECT_EQ(ends.size(), ends.count(EndReason::kLength) + 1);  // those two reasons alone
  const EngineLoad load = engine.load();
  EXPECT_EQ(load.n_live, 0);
  EXPECT_EQ(load.n_waiting + load.n_running + load.n_parked, 0);
  EXPECT_EQ(load.n_slots, 0);
  EXPECT_EQ(load.n_pinned_blocks, 0);
  EXPECT_EQ(engine.mailbox().n_live(), 0);
  EXPECT_EQ(engine.mailbox().n_outputs(), 0);
  engine.check();
}

}  // namespace
}  // namespace fathom
