// Goal: many streams at once arrive whole and in order, and clients that vanish at random instants
// leave nothing behind. Method: a server in this process, its clients in one loop of this thread;
// every letter is looked at. serve_load does the same with more of both.
#include <gtest/gtest.h>

#include <boost/asio.hpp>
#include <memory>
#include <random>
#include <thread>

#include "letter_stream.h"
#include "scripted_executor.h"
#include "serve/server.h"

namespace fathom {
namespace {

namespace asio = boost::asio;

constexpr int64_t kSlots = 48;

class StreamsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = load_model(std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m", {});
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
    const ModelConfig& config = loaded_.model->config();
    executor_ = std::make_unique<ScriptedExecutor>(
        script_, *loaded_.tokenizer, static_cast<int32_t>(config.eos_token_id),
        ScriptedOptions{.n_sequences = kSlots, .n_blocks = 4 * kSlots, .step_us = 200});
    EngineOptions options;
    // Nobody is refused, however late the engine comes to those that vanished.
    options.mailbox = {.max_live = 1000, .max_live_of_tenant = 1000, .max_outputs = 2 * kSlots};
    engine_ = std::make_unique<Engine>(*executor_, options);
    service_ = std::make_unique<ChatService>(
        loaded_, *ChatTemplate::load(loaded_.path, config.model_type),
        ServiceOptions{.model_name = "scripted", .fingerprint = "", .context = 4096});
    server_ = std::move(*Server::listen(*service_, *engine_, {}));
    port_ = server_->port();
    serving_ = std::thread([this] { server_->run(); });
  }

  void TearDown() override {
    server_->stop();
    serving_.join();
    EXPECT_EQ(engine_->load().n_live, 0);
    EXPECT_EQ(engine_->load().n_slots, 0);
    EXPECT_EQ(engine_->load().n_pinned_blocks, 0);
    engine_->check();
  }

  // All at once.
  void expect_whole_streams(int64_t n, int64_t n_letters) {
    asio::io_context io(1);
    std::vector<std::unique_ptr<LetterStream>> streams;
    for (int64_t i = 0; i < n; ++i) {
      streams.push_back(std::make_unique<LetterStream>(io, i * 7, n_letters));
      asio::co_spawn(io, live(*streams.back()), asio::detached);
    }
    io.run();
    for (const auto& stream : streams) EXPECT_TRUE(stream->whole()) << stream->stream();
  }

  asio::awaitable<void> live(LetterStream& stream) {
    const bool connected = co_await stream.connect(port_);
    const bool asked = connected && co_await stream.ask();
    if (asked) co_await stream.read();
  }

  LoadedModel loaded_;
  const Script script_ = *Script::parse(R"([{"letters": true}])");
  std::unique_ptr<ScriptedExecutor> executor_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ChatService> service_;
  std::unique_ptr<Server> server_;
  std::thread serving_;
  int port_ = 0;
};

TEST_F(StreamsTest, MoreStreamsThanSlotsArriveWhole) { expect_whole_streams(2 * kSlots, 60); }

TEST_F(StreamsTest, ClientsThatVanishLeaveNothing) {
  constexpr int64_t kClients = 400;
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  asio::io_context io(1);
  int64_t n_begun = 0;
  int64_t n_right = 0;
  const auto lane = [&]() -> asio::awaitable<void> {
    while (n_begun++ < kClients) {
      LetterStream stream(io, n_begun, 20);
      Vanishing how = {.after_us = static_cast<int64_t>(random() % 8000),
                       .reset = random() % 2 == 0};
      if (random() % 10 == 0) how.part = static_cast<double>(random() % 100) / 100;
      const bool asked = co_await stream.vanish(port_, how);
      n_right += asked && stream.right() ? 1 : 0;
    }
  };
  for (int i = 0; i < 32; ++i) asio::co_spawn(io, lane(), asio::detached);
  io.run();
  EXPECT_EQ(n_right, kClients);
  expect_whole_streams(kSlots, 20);
}

}  // namespace
}  // namespace fathom
