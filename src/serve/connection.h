#pragma once

// Connection: one client's requests, one after the other, and their answers. It lives in the frame
// of the coroutine that serves it. Thread rule: that of the loop, which outlives it.

#include <boost/beast/http.hpp>
#include <memory>
#include <string>

#include "serve/byte_stream.h"
#include "serve/http_message.h"
#include "serve/routes.h"
#include "serve/server_loop.h"

namespace fathom {

// What the log says of a tenant.
std::string tenant_text(const Tenant& tenant);

class Connection {
 public:
  Connection(ServerLoop& loop, tcp::socket socket);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  asio::awaitable<void> serve();

  // Closes it where no request is on its way.
  void close_idle();
  // The time for reading the request `round` is over.
  void end_reading(uint64_t round);

 private:
  // A call that was taken in.
  struct Call {
    explicit Call(const asio::any_io_executor& executor) : waiting(executor) {}
    std::unique_ptr<ChatJob> job;
    RequestId id = {};
    int64_t charged_tokens = 0;
    Waiting waiting;
  };

  // connection.cc
  asio::awaitable<bool> wait_for_byte();
  asio::awaitable<bool> exchange();
  asio::awaitable<bool> answer(const HttpRequest& request, const Tenant& tenant, bool keep,
                               bool streams);
  HttpReply looked_up(const HttpRequest& request) const;
  asio::awaitable<bool> administer(const HttpRequest& request, const Tenant& tenant, bool keep);
  asio::awaitable<void> linger();
  HttpReply unread(boost::system::error_code code, const std::string& path);
  asio::awaitable<bool> send(const std::string& bytes);
  asio::awaitable<bool> write(const HttpReply& reply, bool keep);

  // connection_call.cc
  asio::awaitable<bool> call(const HttpRequest& request, Protocol protocol, const Tenant& tenant,
                             bool keep);
  HttpReply take_in(const HttpRequest& request, Protocol protocol, const Tenant& tenant,
                    Call& call);
  HttpReply refused(Dialect dialect, const QuotaRefusal& refusal, const Tenant& tenant);
  Result<void> submit(Request request, const Tenant& tenant, Call& call);
  asio::awaitable<bool> stream_out(Call& call, bool keep);
  asio::awaitable<bool> advance(Call& call);
  void settle(const HttpRequest& request, const Tenant& tenant, const Call& call, bool open);

  ServerLoop& loop_;
  const ServerOptions& options_;
  ByteStream stream_;
  beast::flat_buffer buffer_;
  const uint64_t number_;
  uint64_t round_ = 0;
  bool idle_ = true;
  bool reading_ = false;
  bool late_ = false;
};

}  // namespace fathom
