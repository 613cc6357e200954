#pragma once

// ServerLoop: the one thread of HTTP. It accepts connections, hands the engine's outputs to those
// that wait for them, and ends once a drain is through. What is on a connection: connection.h.
//
// Thread rule: all of it on the thread that is in run(), but for stop().

#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "serve/byte_stream.h"
#include "serve/console.h"
#include "serve/gate.h"
#include "serve/metrics.h"
#include "serve/routes.h"
#include "serve/server.h"

namespace fathom {

class Connection;

// Where the loop puts an answer's outputs, and where its connection waits for them.
struct Waiting {
  explicit Waiting(const asio::any_io_executor& executor) : bell(executor) {}
  std::deque<Output> outputs;
  asio::steady_timer bell;
  CallRecord record;
  ByteStream* blocked = nullptr;  // its client has not yet taken what was sent last
  bool overrun = false;
  bool cut = false;      // the time of a drain is over
  bool stirred = false;  // the socket: its end, or the next request
};

class ServerLoop {
 public:
  ServerLoop(ChatService& service, Engine& engine, const ServerOptions& options);

  Result<void> listen();
  int port() const { return port_; }
  bool unguarded() const { return gate_.open() && !loopback_; }
  void run();
  void stop();        // any thread
  void read_again();  // any thread

  // For connections.
  asio::io_context& io() { return io_; }
  ChatService& service() { return service_; }
  const ServerOptions& options() const { return options_; }
  EngineHost& host() { return *host_; }
  Gate& gate() { return gate_; }
  ServerMetrics& metrics() { return metrics_; }
  ServerView view() const;
  const BuildFacts& build() const { return build_; }
  asio::ssl::context* tls() { return tls_ ? &*tls_ : nullptr; }

  uint64_t enter(Connection& connection);
  void leave(uint64_t number);
  // For an answer that has no id of its own.
  std::string next_id();
  // Seconds until a drain is over at the latest, at least 1.
  int64_t drain_left_s() const;
  // A request is on its way while one of these lives. The loop does not end before those that came
  // ahead of a drain have their answers.
  class Answering {
   public:
    explicit Answering(ServerLoop& loop) : loop_(loop), late_(loop.host().draining()) {
      if (!late_) ++loop_.n_answering_;
    }
    ~Answering();
    Answering(const Answering&) = delete;
    Answering& operator=(const Answering&) = delete;

   private:
    ServerLoop& loop_;
    const bool late_;
  };
  // Bytes of a body that is read; false: there are too many.
  bool hold_body(int64_t n_bytes);
  void drop_body(int64_t n_bytes) { body_bytes_ -= n_bytes; }
  // Runs the work, which takes a time by the size of a body, on a thread beside the loop. What it
  // throws comes back.
  asio::awaitable<void> aside(size_t body_bytes, const std::function<void()>& work);
  // After so long, tells the connection, if it is still there, that the time for `round` is over.
  void limit_reading(asio::steady_timer& timer, milliseconds time, uint64_t connection,
                     uint64_t round);

  void expect(RequestId id, Waiting& waiting) { waiting_.emplace(id, &waiting); }
  // Once, if the answer is still waited for by then.
  void stir_when(tcp::socket::wait_type state, tcp::socket& socket, RequestId id);
  void forget(RequestId id) { waiting_.erase(id); }
  void cancel(RequestId id);
  // Nothing: the server is going down.
  asio::awaitable<std::optional<CacheReport>> ask(CacheOrder order);

  // Counts the answer and writes its line, with what was wrong at its end.
  void answered(const HttpRequest& request, const HttpReply& reply, const std::string& tenant);
  // `more` goes to the end of the line.
  void answered(const HttpRequest& request, int status, const std::string& more = "");
  void failed(const std::exception_ptr& failure) const;
  void log(const std::string& line) const;

 private:
  struct Asked {
    explicit Asked(const asio::any_io_executor& executor) : bell(executor) {}
    std::optional<CacheReport> report;
    asio::steady_timer bell;
  };

  // server_life.cc
  void watch_signals();
  void wait_for_hangup();
  void read_keys();
  void read_certificate();
  void drain();
  void cut_off();
  void end_if_drained();

  // server_loop.cc
  void run_loop();
  void deliver(std::vector<Output>& outputs);
  asio::awaitable<void> accept();
  void begin(tcp::socket socket, bool probe);
  asio::awaitable<void> connection(tcp::socket socket, bool probe);
  bool make_place_for_probe();

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
  std::set<uint64_t> probes_;  // of these, those beyond max_connections
  int64_t n_answering_ = 0;
  int64_t body_bytes_ = 0;
  double told_s_ = 0;       // when a connection was last said to have found no place
  double drain_end_s_ = 0;  // while it drains
  bool over_ = false;       // nothing runs any more
  const BuildFacts build_;
  const std::string id_prefix_;
  uint64_t n_ids_ = 0;
  asio::io_context io_{1};  // ends what still waits, and that leaves the maps: after them
  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  asio::signal_set hangups_;
  asio::steady_timer drain_limit_;
  asio::thread_pool short_lane_{1};  // a long body holds up no short one
  asio::thread_pool long_lane_{1};
  std::optional<EngineHost> host_;
  uint64_t last_asked_ = 0;
  uint64_t last_connection_ = 0;
  int port_ = 0;
  bool loopback_ = true;
};

}  // namespace fathom
