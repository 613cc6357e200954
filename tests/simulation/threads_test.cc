// Goal: submit, cancel and take_outputs may be called from any thread while the engine ticks.
// Method: three clients and a reader against a ticking engine, every whole answer compared. What
// the thread sanitizer is to look at.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "engine/engine.h"
#include "hash_executor.h"

namespace fathom {
namespace {

TEST(EngineThreads, ClientsAndAReaderBesideATickingEngine) {
  constexpr int kClients = 3;
  constexpr int kEach = 25;
  const HashOptions hash = {.n_blocks = 12};
  HashExecutor executor(hash);
  EngineOptions options;
  options.mailbox = {.max_live = 6, .max_live_of_tenant = 6, .max_outputs = 4};
  Engine engine(executor, options);
  std::mutex mutex;
  std::map<RequestId, Request> sent;
  std::map<RequestId, std::vector<int32_t>> answers;
  std::map<RequestId, EndReason> ends;
  std::atomic<int> n_ended = 0;

  std::thread ticking([&] {
    while (n_ended < kClients * kEach) engine.tick(1, 500);
  });
  std::thread reading([&] {
    while (n_ended < kClients * kEach) {
      for (const Output& output : engine.take_outputs(3, 500)) {
        for (const SampledToken& token : output.tokens) answers[output.request].push_back(token.id);
        if (output.finish == EndReason::kNone) continue;
        ends[output.request] = output.finish;
        ++n_ended;
      }
    }
  });
  std::vector<std::thread> clients;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      std::mt19937 random(static_cast<uint32_t>(c));
      for (int n = 0; n < kEach;) {
        Request request = {.tenant = static_cast<TenantId>(c), .max_tokens = 1 + n % 9};
        for (uint32_t i = 0; i < 60 + random() % 80; ++i) {
          request.prompt.push_back(static_cast<int32_t>(i % 50));
        }
        const Result<RequestId> id = engine.submit(request);
        if (!id) {
          std::this_thread::yield();
          continue;
        }
        ++n;
        if (random() % 5 == 0) engine.cancel(*id);
        const std::lock_guard lock(mutex);
        sent.emplace(*id, std::move(request));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  reading.join();
  ticking.join();

  ASSERT_EQ(ends.size(), sent.size());
  int n_whole = 0;
  for (const auto& [id, request] : sent) {
    auto want = hash_answer(hash, request.prompt, request.max_tokens, request.sampling.seed);
    if (ends[id] == EndReason::kCancelled) want.resize(answers[id].size());
    n_whole += ends[id] == EndReason::kLength ? 1 : 0;
    EXPECT_EQ(answers[id], want);
  }
  EXPECT_GT(n_whole, 30);
  engine.check();
  EXPECT_EQ(engine.load().n_pinned_blocks, 0);
}

// A status that is read after an output counts it; orders are answered once each, between steps.
TEST(EngineThreads, StatusAndCacheOrdersFromOtherThreads) {
  HashExecutor executor({.n_blocks = 24});
  EngineOptions options;
  options.mailbox = {.max_live = 8, .max_live_of_tenant = 8, .max_outputs = 4};
  Engine engine(executor, options);
  std::thread ticking([&] {
    while (engine.tick(1, 500) || !engine.mailbox().done()) {
    }
  });
  std::atomic<int> n_answers = 0;
  std::atomic<int64_t> n_cleared = 0;
  std::atomic<bool> over = false;
  int n_asked = 0;
  std::thread admin([&] {
    while (!over) {
      const CacheOrder order = {.clear = n_asked % 2 == 0,
                                .tenant = static_cast<TenantId>(n_asked % 3)};
      const bool taken = engine
                             .ask(order,
                                  [&](const CacheReport& report) {
                                    n_cleared += report.n_cleared;
                                    ++n_answers;
                                  })
                             .has_value();
      n_asked += taken ? 1 : 0;
      while (n_answers < n_asked) std::this_thread::yield();
    }
  });
  int64_t n_tokens = 0;
  int64_t n_prompt = 0;
  for (int n = 0; n < 60; ++n) {
    Request request = {.tenant = static_cast<TenantId>(n % 3), .max_tokens = 5};
    request.tenant_salt = std::to_string(n % 3);
    for (int32_t i = 0; i < 130 + n % 5; ++i) request.prompt.push_back(i % 50);
    n_prompt += static_cast<int64_t>(request.prompt.size());
    ASSERT_TRUE(engine.submit(request));
    for (bool ended = false; !ended;) {
      for (const Output& output : engine.take_outputs(8, 500)) {
        n_tokens += static_cast<int64_t>(output.tokens.size());
        ended = output.finish != EndReason::kNone;
      }
    }
    const EngineStatus status = engine.mailbox().status();
    EXPECT_EQ(status.counters.answered_tokens, n_tokens);
    EXPECT_EQ(status.counters.prompt_tokens, n_prompt);
  }
  over = true;
  admin.join();
  engine.drain();
  EXPECT_FALSE(engine.ask({}, [](const CacheReport&) { FAIL(); }));
  ticking.join();
  EXPECT_EQ(n_answers, n_asked);
  EXPECT_GT(n_cleared, 0);
  const EngineStatus last = engine.status();
  EXPECT_EQ(last.counters.n_no_hit + last.counters.n_exact_hits, 60);
  EXPECT_EQ(last.prefix.cleared, n_cleared);
  EXPECT_EQ(last.load.n_live, 0);
}

TEST(EngineThreads, ADrainedEngineTakesNothingAndEndsWhatItHas) {
  HashExecutor executor({});
  Engine engine(executor, {});
  Request request = {.max_tokens = 3};
  request.prompt = {1, 2, 3};
  ASSERT_TRUE(engine.submit(request));
  engine.drain();
  const auto refused = engine.submit(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  while (engine.tick(1)) {
  }
  size_t n_tokens = 0;
  for (const Output& output : engine.take_outputs(100)) n_tokens += output.tokens.size();
  EXPECT_EQ(n_tokens, 3U);
}

TEST(EngineThreads, ARequestThatCannotBeIsRefusedByName) {
  HashExecutor executor({.n_sequences = 2, .n_blocks = 4});
  Engine engine(executor, {});
  Request good = {.max_tokens = 3};
  good.prompt = {1, 2, 3};
  const auto message = [&](const std::function<void(Request&)>& change) {
    Request request = good;
    change(request);
    const auto result = engine.submit(request);
    EXPECT_FALSE(result);
    return result ? "" : result.error().message;
  };
  EXPECT_EQ(message([](Request& r) { r.prompt.clear(); }),
            "request: prompt: wanted 1 to 399 tokens, found 0");
  EXPECT_EQ(message([](Request& r) { r.prompt.assign(400, 1); }),
            "request: prompt: wanted 1 to 399 tokens, found 400");
  EXPECT_EQ(message([](Request& r) { r.prompt[1] = 1000; }),
            "request: token id: wanted 0 to 999, found 1000");
  EXPECT_EQ(message([](Request& r) { r.max_tokens = 0; }),
            "request: max_tokens: wanted at least 1, found 0");
  EXPECT_EQ(message([](Request& r) { r.n_choices = 3; }), "request: n: wanted 1 to 2, found 3");
  EXPECT_EQ(message([](Request& r) { r.images = {{.begin = 2, .n_tokens = 2}}; }),
            "request: image: wanted ascending spans inside the prompt, found 2");
  EXPECT_EQ(
      message([](Request& r) { r.max_tokens = INT64_MAX; }),
      "request: prompt, max_tokens and n: wanted no more than 4 blocks of 64 tokens, found 7");
  EXPECT_NE(message([](Request& r) { r.sampling.top_p = 7; }), "");
}

}  // namespace
}  // namespace fathom
