#pragma once

// Connection: one client's requests, one after the other, and their answers. It lives in the frame
// of the coroutine that serves it. Thread rule: that of the loop, which outlives it.

#include <boost/beast/http.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "serve/byte_stream.h"
#include "serve/http_message.h"
#include "serve/routes.h"
#include "serve/server_loop.h"

namespace fathom {

class Connection {
 public:
  // `probe`: it has a place for /health and /ready alone.
  Connection(ServerLoop& loop, tcp::socket socket, bool probe);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  asio::awaitable<void> serve();

  bool probe() const { return probe_; }
  // Closes it where no request is on its way.
  void close_idle();
  // Closes it where no request has come yet; whether it did.
  bool close_silent();
  // The time for reading the request `round` is over.
  void end_reading(uint64_t round);

 private:
  using Parser = beast::http::request_parser<beast::http::string_body>;

  // A call on its way. Where it is not settled, because something was thrown or all ends, its
  // quota and its place are given back with it.
  struct Call {
    Call(Connection& owner, const Tenant& caller)
        : connection(owner), tenant(caller), waiting(owner.stream_.get_executor()) {}
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    Connection& connection;
    const Tenant& tenant;
    std::unique_ptr<ChatJob> job;
    bool entered = false;  // in its tenant's quota
    bool submitted = false;
    bool half_closed = false;  // the client sends no more
    bool polls = false;        // what it sent further wakes the look-out and hides its end
    std::chrono::steady_clock::time_point comment_at;  // of a stream, where it is silent until then
    RequestId id = {};
    int64_t charged_tokens = 0;
    Waiting waiting;
  };

  // connection.cc
  asio::awaitable<bool> wait_for_byte();
  asio::awaitable<bool> guarded_exchange();
  asio::awaitable<bool> exchange();
  std::optional<HttpReply> unwelcome(const HttpRequest& request, const Parser& parser);
  asio::awaitable<boost::system::error_code> read_body(Parser& parser);
  std::optional<HttpReply> without_place(const HttpRequest& request);
  void drop_body();
  HttpReply unread(boost::system::error_code code, const HttpRequest& request);
  // Where it has to wait, `waiting` knows of it.
  asio::awaitable<bool> send(const std::string& bytes, Waiting* waiting = nullptr);
  asio::awaitable<bool> write(const HttpReply& reply, bool keep);

  // connection_plain.cc
  asio::awaitable<bool> answer(HttpRequest& request, const Tenant& tenant, bool keep, bool streams);
  HttpReply looked_up(const HttpRequest& request) const;
  asio::awaitable<bool> administer(const HttpRequest& request, const Tenant& tenant, bool keep);

  // connection_call.cc
  asio::awaitable<bool> call(HttpRequest& request, Protocol protocol, const Tenant& tenant,
                             bool keep);
  asio::awaitable<HttpReply> take_in(HttpRequest& request, Protocol protocol, Call& call);
  HttpReply refused(Dialect dialect, const QuotaRefusal& refusal, const Tenant& tenant);
  Result<void> submit(Request request, Call& call);
  asio::awaitable<bool> stream_out(Call& call, bool keep);
  asio::awaitable<bool> advance(Call& call);
  asio::awaitable<bool> look_out(Call& call);
  void settle(const HttpRequest& request, Call& call, bool open);

  ServerLoop& loop_;
  const ServerOptions& options_;
  ByteStream stream_;
  beast::flat_buffer buffer_;
  const bool probe_;
  const std::string peer_;
  const uint64_t number_;
  uint64_t round_ = 0;
  std::string id_;  // of the answer
  Dialect dialect_ = Dialect::kOpenAi;
  bool silent_ = true;  // no header has come yet
  bool idle_ = true;
  bool reading_ = false;
  bool late_ = false;
  bool head_only_ = false;  // the request is HEAD
  bool old_ = false;        // it is one of HTTP/1.0
  bool begun_ = false;      // an answer, so that there is no room for another
  int64_t held_bytes_ = 0;  // of a body
};

}  // namespace fathom
