#pragma once

// A server of the shipped model in this process, over loopback.

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/model_executor.h"
#include "http_client.h"
#include "serve/server.h"
#include "text/token_trie.h"

namespace fathom {

// A call whose answer has all of its 300 tokens: drawn at temperature 2, from a seed that does not
// stop before.
std::string long_call(bool stream = true);

struct ServedEngine {
  Schedule schedule = Schedule::kDeploy;
  int64_t context = 512;
  int64_t n_sequences = 3;
  int64_t n_blocks = 0;  // 0: a context for each sequence
  int64_t max_live = 4;
  int64_t session_bytes = 0;
};

class Served {
 public:
  // Listens on a free port; the log of the options is set here.
  explicit Served(ServerOptions options, const ServedEngine& asked = {});
  ~Served();
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  int port() const { return server_->port(); }
  Server& server() { return *server_; }
  const Tokenizer& tokenizer() const { return *loaded_.tokenizer; }
  std::vector<std::string> log();
  // Drains, and checks that nothing is held.
  void stop();

 private:
  LoadedModel loaded_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<ModelExecutor> executor_;
  std::unique_ptr<TokenTrie> tokens_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ChatService> service_;
  std::unique_ptr<Server> server_;
  std::thread serving_;
  std::mutex mutex_;
  std::vector<std::string> log_;
};

}  // namespace fathom
