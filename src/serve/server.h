#pragma once

// Server: HTTP/1.1 around a ChatService and an engine. Routes, limits of transport, streams.
//
//   GET  /health  the process is alive            GET /ready  it takes requests (503: it drains)
//   GET  /version, /v1/models                     POST /v1/chat/completions, /v1/completions
//   POST /v1/messages, /v1/messages/count_tokens  POST /v1/responses
//   POST /tokenize, /detokenize
//   GET  /metrics (metrics.h)                     /admin/... (admin.h)
//   GET  /console (console.h)
//
// A slow client (too many bytes unsent, or none taken for a while) and one that went away are
// cancelled; nobody else is touched. Bodies are read into prompts beside the loop: short ones on
// one thread, long ones on another. Source: docs/design.md section 4.

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "serve/chat_service.h"
#include "serve/engine_host.h"
#include "serve/keys.h"

namespace fathom {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address
  int port = 0;                    // 0: any free one
  int64_t max_connections = 4096;  // fewer where the limit of open files is lower
  int64_t body_bytes_max = int64_t{48} << 20;
  int64_t header_bytes_max = 16'384;
  int64_t idle_ms = 60'000;        // of a kept connection without a request
  int64_t read_ms = 30'000;        // for a whole request, from its first byte on
  int64_t write_ms = 30'000;       // that a client may take nothing
  int64_t keep_alive_ms = 15'000;  // between comments of a silent stream
  // Of one answer while its client's socket takes nothing, before the client counts as too slow.
  int64_t waiting_outputs_max = 256;
  int64_t bodies_bytes_max = int64_t{512} << 20;  // of the long bodies that are read at once
  int64_t drain_ms = 30'000;                      // after which a drain cancels what is live
  // SIGTERM and SIGINT, from listen() on, do what stop() does; the one after that ends the process.
  bool end_at_signals = false;
  // Where read_keys_again() finds keys; may be null. With end_at_signals, SIGHUP calls that too.
  std::function<Result<KeyRing>()> read_keys;
  KeyRing keys;                 // none: anybody is served, and nobody administers
  std::string tls_certificate;  // a file with the chain, and one with its key; empty: plain HTTP
  std::string tls_key;
  std::string version;
  // One line for each answered request, without a line feed, with the tenant's name and never its
  // key, and with what was wrong with a refused one; may be null.
  std::function<void(const std::string& line)> log;
};

class ServerLoop;

// The IP address that a host of `--listen` names: an address, IPv6 in brackets, or localhost.
// kInvalid: another.
Result<std::string> listen_address(const std::string& host);

class Server {
 public:
  // Listens at once. kIo names the address, kInvalid a certificate. Service and engine outlive the
  // server; the engine is used by it alone.
  static Result<std::unique_ptr<Server>> listen(ChatService& service, Engine& engine,
                                                const ServerOptions& options);
  ~Server();

  int port() const;
  // No keys, on an address that others can reach.
  bool unguarded() const;
  // Serves until stop(); what was taken in is finished, or lost after drain_ms.
  void run();
  void stop();  // any thread
  // Takes the keys of `read_keys` in place of those that it has, and says so in the log; where
  // they cannot be read, or are none, keeps what it has and says why. Any thread.
  void read_keys_again();

 private:
  explicit Server(std::unique_ptr<ServerLoop> loop);
  std::unique_ptr<ServerLoop> loop_;
};

}  // namespace fathom
