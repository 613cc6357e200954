#include "served.h"

#include <gtest/gtest.h>

#include "ops/backends.h"

namespace fathom {

std::string long_call(bool stream) {
  return std::string(R"({"messages":[{"role":"user","content":"Count."}],"max_tokens":300,)") +
         R"("thinking":{"type":"disabled"},"temperature":2,"seed":1,"stream":)" +
         (stream ? "true}" : "false}");
}

Served::Served(ServerOptions options, const ServedEngine& asked) {
  loaded_ = std::move(*load_model(std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m", {}));
  ops_ = std::move(*make_backend({.n_threads = 1}));
  runner_ = std::move(*Runner::make(*loaded_.model, *ops_,
                                    {.schedule = asked.schedule,
                                     .context = asked.context,
                                     .n_sequences = asked.n_sequences,
                                     .n_blocks = asked.n_blocks,
                                     .max_rows = 128,
                                     .max_logit_rows = asked.n_sequences + 32}));
  executor_ = std::make_unique<ModelExecutor>(*runner_, loaded_.tokenizer->vocab_size());
  EngineOptions engine;
  tokens_ = std::make_unique<TokenTrie>(*loaded_.tokenizer);
  engine.tokens = tokens_.get();
  engine.mailbox = {
      .max_live = asked.max_live, .max_live_of_tenant = asked.max_live, .max_outputs = 64};
  engine.sessions.max_bytes = asked.session_bytes;
  engine_ = std::make_unique<Engine>(*executor_, engine);
  service_ = std::make_unique<ChatService>(
      loaded_, *ChatTemplate::load(loaded_.path, loaded_.model->config().model_type),
      ServiceOptions{.model_name = "fathom-34m",
                     .fingerprint = "fp",
                     .context = asked.context,
                     .restore = RestoreGrade::kExact,
                     .n_choices_max = asked.n_sequences});
  options.log = [this](const std::string& line) {
    const std::lock_guard lock(mutex_);
    log_.push_back(line);
  };
  auto listening = Server::listen(*service_, *engine_, options);
  FATHOM_CHECK(listening.has_value());
  server_ = std::move(*listening);
  serving_ = std::thread([this] { server_->run(); });
}

Served::~Served() { stop(); }

std::vector<std::string> Served::log() {
  const std::lock_guard lock(mutex_);
  return log_;
}

void Served::stop() {
  if (!serving_.joinable()) return;
  server_->stop();
  serving_.join();
  EXPECT_EQ(engine_->load().n_live, 0);
  EXPECT_EQ(engine_->load().n_slots, 0);
  EXPECT_EQ(engine_->load().n_pinned_blocks, 0);
  engine_->check();
}

}  // namespace fathom
