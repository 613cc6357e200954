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
#include <utility>
#include <vector>

#include "serve/chat_service.h"
#include "serve/engine_host.h"
#include "serve/keys.h"

namespace fathom {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address
  int port = 0;                    // 0: any free one
  int64_t max_connections = 4096;  // fewer where the limit of open files is lower
  // Beside them, for requests of /health and /ready alone, which have to come within probe_ms.
  int64_t probe_connections = 32;
  int64_t probe_ms = 2'000;
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
  // SIGHUP does what read_again() does; where there is nothing to read, what stop() does, unless
  // it was ignored when the process began.
  bool end_at_signals = false;
  std::function<Result<KeyRing>()> read_keys;  // where read_again() finds keys; may be null
  KeyRing keys;                                // none: anybody is served, and nobody administers
  std::string tls_certificate;  // a file with the chain, and one with its key; empty: plain HTTP
  std::string tls_key;
  std::string version;
  // What else is told of the program at /version and in metrics, by name.
  std::vector<std::pair<std::string, std::string>> build;
  // One line for each answered request, without a line feed, with the client's address, the
  // answer's id, the tenant's name and never its key, and with what was wrong with a refused one.
  // What asks again and again (/health, /ready, /console/state) has one where it fails. May be
  // null.
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
  // Serves until stop(); what was taken in is finished, or lost after drain_ms. Until then whoever
  // asks gets an answer: /ready and calls of the model 503.
  void run();
  void stop();  // any thread
  // Takes the keys of `read_keys`, and the certificate with its key as their files are now, in
  // place of those that it has, and says so in the log; what cannot be read, or is none, stays as
  // it was, and the log says why. Any thread.
  void read_again();

 private:
  explicit Server(std::unique_ptr<ServerLoop> loop);
  std::unique_ptr<ServerLoop> loop_;
};

}  // namespace fathom
