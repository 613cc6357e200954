#include "serve/server.h"

#include <boost/asio.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <deque>
#include <map>
#include <optional>

#include "serve/http_message.h"
#include "serve/routes.h"

namespace fathom {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using std::chrono::milliseconds;

// An error comes back as a value, never as an exception.
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

// Where the loop puts an answer's outputs, and where its connection waits for them.
struct Waiting {
  explicit Waiting(const asio::any_io_executor& executor) : bell(executor) {}
  std::deque<Output> outputs;
  asio::steady_timer bell;
  bool overrun = false;
  bool watched = true;  // the socket, for its end; not once the next request has come
};

// A connection whose request is being read.
struct Reading {
  beast::tcp_stream* stream = nullptr;
  bool late = false;
};

}  // namespace

// All of it runs on the one thread that is in run(), but for the posting of outputs.
class Server::Loop {
 public:
  Loop(ChatService& service, Engine& engine, const ServerOptions& options)
      : service_(service), engine_(engine), options_(options), acceptor_(io_), signals_(io_) {}

  Result<void> listen() {
    const std::string where = options_.host + ":" + std::to_string(options_.port);
    boost::system::error_code code;
    const auto address = asio::ip::make_address(options_.host, code);
    if (code) return invalid("listen: wanted an IP address, found " + options_.host);
    const tcp::endpoint endpoint(address, static_cast<uint16_t>(options_.port));
    acceptor_.open(endpoint.protocol(), code);
    if (!code) acceptor_.set_option(asio::socket_base::reuse_address(true), code);
    if (!code) acceptor_.bind(endpoint, code);
    if (!code) acceptor_.listen(asio::socket_base::max_listen_connections, code);
    if (code)
      return io_error("listen: " + where + ": wanted a free port, found: " + code.message());
    port_ = acceptor_.local_endpoint(code).port();
    if (options_.end_at_signals) {  // one that comes before run() is kept
      signals_.add(SIGTERM, code);
      signals_.add(SIGINT, code);
    }
    return {};
  }

  int port() const { return port_; }

  void run() {
    host_.emplace(engine_, [this](std::vector<Output> outputs) {
      asio::post(io_, [this, outputs = std::move(outputs)]() mutable { deliver(outputs); });
    });
    asio::co_spawn(io_, accept(), asio::detached);
    if (options_.end_at_signals) {
      signals_.async_wait([this](boost::system::error_code failed, int) {
        if (!failed) drain();
      });
    }
    io_.run();
    host_.reset();
  }

  void stop() {
    asio::post(io_, [this] { drain(); });
  }

 private:
  // Takes nothing more; once the last answer is out the loop ends.
  void drain() {
    host_->drain();
    boost::system::error_code code;
    acceptor_.close(code);
    signals_.cancel(code);
    for (auto& [number, socket] : idle_) socket->close(code);
    end_if_drained();
  }

  void end_if_drained() {
    if (host_->draining() && n_answering_ == 0) io_.stop();
  }

  void deliver(std::vector<Output>& outputs) {
    for (Output& output : outputs) {
      const auto found = waiting_.find(output.request);
      if (found == waiting_.end()) continue;  // its client is gone
      Waiting& waiting = *found->second;
      waiting.outputs.push_back(std::move(output));
      if (static_cast<int64_t>(waiting.outputs.size()) > options_.waiting_outputs_max) {
        waiting.overrun = true;
      }
      waiting.bell.cancel();
    }
  }

  asio::awaitable<void> accept() {
    while (true) {
      auto [code, socket] = co_await acceptor_.async_accept(kAwait);
      if (!acceptor_.is_open()) co_return;
      if (code || n_connections_ >= options_.max_connections) continue;
      asio::co_spawn(io_, connection(std::move(socket)), asio::detached);
    }
  }

  asio::awaitable<void> connection(tcp::socket socket) {
    ++n_connections_;
    beast::tcp_stream stream(std::move(socket));
    boost::system::error_code ignored;
    stream.socket().set_option(tcp::no_delay(true), ignored);
    const uint64_t number = ++last_connection_;
    beast::flat_buffer buffer;
    bool more = true;
    while (more && !host_->draining()) {
      idle_.emplace(number, &stream.socket());
      more = co_await wait_for_byte(stream, buffer);
      idle_.erase(number);
      if (!more) break;
      ++n_answering_;
      more = co_await exchange(stream, buffer);
      --n_answering_;
    }
    stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream.close();
    --n_connections_;
    if (host_->draining()) end_if_drained();
  }

  // Whether a request begins.
  asio::awaitable<bool> wait_for_byte(beast::tcp_stream& stream, beast::flat_buffer& buffer) {
    if (buffer.size() > 0) co_return true;
    stream.expires_after(milliseconds(options_.idle_ms));
    auto [code, n] = co_await stream.async_read_some(buffer.prepare(4096), kAwait);
    if (code) co_return false;
    buffer.commit(n);
    co_return true;
  }

  // One request and its answer; whether the connection goes on.
  asio::awaitable<bool> exchange(beast::tcp_stream& stream, beast::flat_buffer& buffer) {
    http::request_parser<http::string_body> parser;
    parser.header_limit(static_cast<uint32_t>(options_.header_bytes_max));
    parser.body_limit(static_cast<uint64_t>(options_.body_bytes_max));
    // Not the stream's own time limit, which would close the socket before it got its answer.
    stream.expires_never();
    const uint64_t round = ++last_reading_;
    reading_.emplace(round, Reading{.stream = &stream});
    asio::steady_timer limit(io_, milliseconds(options_.read_ms));
    limit.async_wait([this, round](boost::system::error_code stopped) {
      if (!stopped) end_reading(round);
    });
    auto [code, n] = co_await http::async_read(stream, buffer, parser, kAwait);
    const bool late = reading_.at(round).late;
    reading_.erase(round);
    limit.cancel();
    if (code) {
      const HttpReply reply = unread(code, late, std::string(parser.get().target()));
      if (reply.status == 0) co_return false;
      stream.expires_after(milliseconds(options_.write_ms));
      co_await write(stream, reply, false);
      co_await linger(stream);
      co_return false;
    }
    auto& message = parser.get();
    const bool keep = message.keep_alive();
    const std::string target(message.target());
    HttpRequest request = {.method = std::string(message.method_string()),
                           .path = target.substr(0, target.find('?')),
                           .body = std::move(message.body())};
    const std::optional<Protocol> protocol = protocol_of(request);
    if (!protocol) {
      const HttpReply reply = plain_reply(request, service_, options_.version, host_->draining());
      log(request, reply.status);
      co_return co_await write(stream, reply, keep);
    }
    co_return co_await answer(stream, buffer, *protocol, request, keep && message.version() == 11);
  }

  // Reads on for a moment: a connection closed on unread bytes is reset, and the answer lost.
  static asio::awaitable<void> linger(beast::tcp_stream& stream) {
    boost::system::error_code code;
    stream.socket().shutdown(tcp::socket::shutdown_send, code);
    stream.expires_after(milliseconds(1000));
    std::vector<char> ignored(16'384);
    while (!code) {
      auto [failed, n] = co_await stream.async_read_some(asio::buffer(ignored), kAwait);
      code = failed;
    }
  }

  void end_reading(uint64_t round) {
    const auto found = reading_.find(round);
    if (found == reading_.end()) return;  // it was read just now
    found->second.late = true;
    found->second.stream->cancel();
  }

  // What to tell a client whose request could not be read; status 0: nothing.
  HttpReply unread(boost::system::error_code code, bool late, const std::string& path) const {
    const Dialect dialect = dialect_of(path);
    HttpReply reply = {.status = 0};
    if (code == http::error::body_limit) {
      reply = error_reply(
          dialect, 413,
          "body: wanted at most " + std::to_string(options_.body_bytes_max) + " bytes, found more");
    } else if (code == http::error::header_limit) {
      reply = error_reply(dialect, 431,
                          "header: wanted at most " + std::to_string(options_.header_bytes_max) +
                              " bytes, found more");
    } else if (late) {
      reply = error_reply(
          dialect, 408,
          "request: wanted all of it within " + std::to_string(options_.read_ms) + " ms");
    } else if (code.category() == make_error_code(http::error::bad_method).category() &&
               code != http::error::end_of_stream && code != http::error::partial_message) {
      reply = error_reply(dialect, 400, "request: wanted HTTP/1.1, found: " + code.message());
    }
    if (reply.status != 0) log({}, reply.status);
    return reply;
  }

  asio::awaitable<bool> answer(beast::tcp_stream& stream, const beast::flat_buffer& buffer,
                               Protocol protocol, const HttpRequest& request, bool keep) {
    const Dialect dialect = dialect_of(request.path);
    Result<std::unique_ptr<ChatJob>> begun = service_.begin(protocol, request.body);
    Result<RequestId> id =
        begun ? host_->submit((*begun)->take_request()) : Result<RequestId>(begun.error());
    if (!id) {
      const HttpReply reply = refusal(dialect, id.error(), host_->draining(), host_->retry_us({}));
      log(request, reply.status);
      co_return co_await write(stream, reply, keep);
    }
    ChatJob& job = **begun;
    Waiting waiting(stream.get_executor());
    waiting_.emplace(*id, &waiting);
    bool open = true;
    if (job.stream()) {
      const std::string head = stream_head() + event_chunks(job.reply().open());
      open = co_await send(stream, head);
    }
    while (open && !job.ended()) open = co_await advance(stream, buffer, job, *id, waiting);
    waiting_.erase(*id);
    if (!job.ended() || job.failure()) host_->cancel(*id);
    const int status = !open ? 499 : job.failure() ? 500 : 200;
    log(request, status);
    if (!open) co_return false;
    if (job.stream()) {
      std::string end;
      if (job.failure()) end = event_chunks({job.reply().fail(*job.failure())});
      const std::string done(job.reply().end_data());
      if (!done.empty()) end += event_chunks({{"", done}});
      end += last_chunk();
      const bool sent = co_await send(stream, end);
      co_return sent&& keep;
    }
    const HttpReply reply = job.failure() ? error_reply(dialect, 500, *job.failure())
                                          : HttpReply{.body = job.reply().whole()};
    co_return co_await write(stream, reply, keep);
  }

  // Takes what is there, or waits for it; whether the client is still there and keeps up.
  asio::awaitable<bool> advance(beast::tcp_stream& stream, const beast::flat_buffer& buffer,
                                ChatJob& job, RequestId id, Waiting& waiting) {
    using asio::experimental::awaitable_operators::operator||;
    if (waiting.overrun) co_return false;
    if (waiting.outputs.empty()) {
      waiting.bell.expires_after(milliseconds(options_.keep_alive_ms));
      if (buffer.size() > 0 || !waiting.watched) {
        co_await waiting.bell.async_wait(kAwait);
      } else {
        const auto first = co_await (waiting.bell.async_wait(kAwait) ||
                                     stream.socket().async_wait(tcp::socket::wait_read, kAwait));
        if (first.index() == 1) {
          if (at_end(stream)) co_return false;
          waiting.watched = false;  // the next request is there already and hides an end
        }
      }
      if (waiting.outputs.empty() && job.stream() &&
          waiting.bell.expiry() <= std::chrono::steady_clock::now()) {
        const std::string comment = comment_chunk("keep-alive");
        co_return co_await send(stream, comment);
      }
    }
    std::string pieces;
    while (!waiting.outputs.empty()) {
      const bool was_said = job.said_all();
      pieces += event_chunks(job.take(waiting.outputs.front()));
      waiting.outputs.pop_front();
      if (job.said_all() && !was_said) host_->cancel(id);
    }
    if (!job.stream() || pieces.empty()) co_return true;
    co_return co_await send(stream, pieces);
  }

  // A readable socket without a byte was closed by its client.
  static bool at_end(beast::tcp_stream& stream) {
    char byte = 0;
    boost::system::error_code code;
    stream.socket().non_blocking(true, code);
    const size_t n =
        stream.socket().receive(asio::buffer(&byte, 1), tcp::socket::message_peek, code);
    return n == 0 && code != asio::error::would_block;
  }

  asio::awaitable<bool> send(beast::tcp_stream& stream, const std::string& bytes) {
    stream.expires_after(milliseconds(options_.write_ms));
    auto [code, n] = co_await asio::async_write(stream, asio::buffer(bytes), kAwait);
    stream.expires_never();
    co_return !code;
  }

  asio::awaitable<bool> write(beast::tcp_stream& stream, const HttpReply& reply, bool keep) {
    http::response<http::string_body> message(static_cast<http::status>(reply.status), 11);
    message.set(http::field::content_type, "application/json");
    if (!reply.allow.empty()) message.set(http::field::allow, reply.allow);
    if (reply.retry_after_s > 0) {
      message.set(http::field::retry_after, std::to_string(reply.retry_after_s));
    }
    message.keep_alive(keep);
    message.body() = reply.body;
    message.prepare_payload();
    stream.expires_after(milliseconds(options_.write_ms));
    auto [code, n] = co_await http::async_write(stream, message, kAwait);
    stream.expires_never();
    co_return !code && keep;
  }

  void log(const HttpRequest& request, int status) const {
    if (!options_.log) return;
    options_.log((request.method.empty() ? "-" : request.method) + " " +
                 (request.path.empty() ? "-" : request.path) + " " + std::to_string(status));
  }

  ChatService& service_;
  Engine& engine_;
  const ServerOptions options_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  std::optional<EngineHost> host_;
  std::map<RequestId, Waiting*> waiting_;
  std::map<uint64_t, tcp::socket*> idle_;
  std::map<uint64_t, Reading> reading_;
  uint64_t last_reading_ = 0;
  uint64_t last_connection_ = 0;
  int64_t n_connections_ = 0;
  int64_t n_answering_ = 0;
  int port_ = 0;
};

Result<std::unique_ptr<Server>> Server::listen(ChatService& service, Engine& engine,
                                               const ServerOptions& options) {
  auto loop = std::make_unique<Loop>(service, engine, options);
  FATHOM_RETURN_IF_ERROR(loop->listen());
  return std::unique_ptr<Server>(new Server(std::move(loop)));
}

Server::Server(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Server::~Server() = default;
int Server::port() const { return loop_->port(); }
void Server::run() { loop_->run(); }
void Server::stop() { loop_->stop(); }

}  // namespace fathom
