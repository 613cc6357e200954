#pragma once

// ServerLoop: the one thread of HTTP. It accepts connections, hands the engine's outputs to those
// that wait for them, and ends once a drain is through. What is on a connection: connection.h.
//
// Thread rule: all of it on the thread that is in run(), but for stop().

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "serve/byte_stream.h"
#include "serve/console.h"
#include "serve/gate.h"
#include "serve/metrics.h"
#include "serve/server.h"

namespace fathom {

class Connection;

// Where the loop puts an answer's outputs, and where its connection waits for them.
struct Waiting {
  explicit Waiting(const asio::any_io_executor& executor) : bell(executor) {}
  std::deque<Output> outputs;
  asio::steady_timer bell;
  CallRecord record;
  bool overrun = false;
  bool stirred = false;  // the socket: its end, or the next request
};

class ServerLoop {
 public:
  ServerLoop(ChatService& service, Engine& engine, const ServerOptions& options);

  Result<void> listen();
  int port() const { return port_; }
  bool unguarded() const { return gate_.open() && !loopback_; }
  void run();
  void stop();  // any thread

  // For connections.
  asio::io_context& io() { return io_; }
  ChatService& service() { return service_; }
  const ServerOptions& options() const { return options_; }
  EngineHost& host() { return *host_; }
  Gate& gate() { return gate_; }
  ServerMetrics& metrics() { return metrics_; }
  ServerView view() const;
  asio::ssl::context* tls() { return tls_ ? &*tls_ : nullptr; }

  uint64_t enter(Connection& connection);
  void leave(uint64_t number);
  // A request is on its way: the loop does not end.
  void begin_answer() { ++n_answering_; }
  void end_answer() { --n_answering_; }
  // After read_ms, tells the connection, if it is still there, that the time for `round` is over.
  void limit_reading(asio::steady_timer& timer, uint64_t connection, uint64_t round);

  void expect(RequestId id, Waiting& waiting) { waiting_.emplace(id, &waiting); }
  // Once, if the answer is still waited for by then.
  void stir_when_readable(tcp::socket& socket, RequestId id);
  void forget(RequestId id) { waiting_.erase(id); }
  // Nothing: the server is going down.
  asio::awaitable<std::optional<CacheReport>> ask(CacheOrder order);

  // Counts the answer and writes its line; `more` goes to the end of it.
  void answered(const HttpRequest& request, int status, const std::string& more = "");
  void log(const std::string& line) const;

 private:
  struct Asked {
    explicit Asked(const asio::any_io_executor& executor) : bell(executor) {}
    std::optional<CacheReport> report;
    asio::steady_timer bell;
  };

  void drain();
  void end_if_drained();
  void deliver(std::vector<Output>& outputs);
  asio::awaitable<void> accept();
  asio::awaitable<void> connection(tcp::socket socket);

  ChatService& service_;
  Engine& engine_;
  const ServerOptions options_;
  Gate gate_;
  ServerMetrics metrics_;
  const double begun_s_ = steady_seconds();
  std::optional<asio::ssl::context> tls_;
  std::map<RequestId, Waiting*> waiting_;
  std::map<uint64_t, Asked*> asked_;
  std::map<uint64_t, Connection*> connections_;
  asio::io_context io_{1};  // ends what still waits, and that leaves the maps: after them
  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  std::optional<EngineHost> host_;
  uint64_t last_asked_ = 0;
  uint64_t last_connection_ = 0;
  int64_t n_answering_ = 0;
  int port_ = 0;
  bool loopback_ = true;
};

}  // namespace fathom
