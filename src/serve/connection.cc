#include "serve/connection.h"

#include <exception>
#include <sstream>
#include <utility>

#include "serve/routes.h"
#include "text/quote.h"

namespace fathom {

namespace http = beast::http;

namespace {

constexpr milliseconds kGoodbyeMs = milliseconds(1000);
// Bodies up to here are not counted: those of all connections together are bounded by themselves.
constexpr int64_t kCountedBodyBytes = 65'536;
// One read takes at most so many; the buffer has room for a header beside them.
constexpr int64_t kReadBytes = 65'536;
// Sizes and extensions of chunks and their trailers may be as long as a header, and so many times
// the body: chunks of one byte need five.
constexpr int64_t kFramingOfBody = 16;

// Authorization wins (spec/api.md section 5).
template <typename Fields>
std::string key_of(const Fields& fields) {
  constexpr std::string_view kBearer = "Bearer ";
  const auto authorization = fields[http::field::authorization];
  if (beast::iequals(authorization.substr(0, kBearer.size()), kBearer)) {
    return std::string(authorization.substr(kBearer.size()));
  }
  return std::string(fields["x-api-key"]);
}

std::string peer_of(const tcp::socket& socket) {
  boost::system::error_code code;
  const tcp::endpoint peer = socket.remote_endpoint(code);
  if (code) return "-";
  std::ostringstream text;
  text << peer;
  return text.str();
}

template <typename Message>
HttpRequest head_of(const Message& message) {
  const std::string target(message.target());
  return {.method = std::string(message.method_string()),
          .path = target.substr(0, target.find('?')),
          .key = key_of(message),
          .if_none_match = std::string(message[http::field::if_none_match])};
}

// Whether where the body ends is told in a way that this server knows (RFC 9112 6.1). Where it is
// not, what follows the header may not be taken for another request.
template <typename Message>
bool has_known_end(const Message& message) {
  const auto coding = message[http::field::transfer_encoding];
  return message.count(http::field::transfer_encoding) == 0 ||
         (message.version() == 11 && beast::iequals(coding, "chunked"));
}

}  // namespace

Connection::Connection(ServerLoop& loop, tcp::socket socket, bool probe)
    : loop_(loop),
      options_(loop.options()),
      stream_(std::move(socket), loop.tls()),
      buffer_(static_cast<size_t>(options_.header_bytes_max + kReadBytes)),
      probe_(probe),
      peer_(peer_of(stream_.socket())),
      number_(loop.enter(*this)) {}

Connection::~Connection() {
  drop_body();
  loop_.leave(number_);
}

asio::awaitable<void> Connection::serve() {
  boost::system::error_code ignored;
  stream_.socket().set_option(tcp::no_delay(true), ignored);
  const auto failed =
      co_await stream_.begin(milliseconds(probe_ ? options_.probe_ms : options_.read_ms));
  if (failed && !probe_) loop_.log("- - tls: peer=" + peer_ + ": " + failed.message());
  bool more = !failed;
  while (more) {
    idle_ = true;
    more = co_await wait_for_byte();
    idle_ = false;
    if (!more) break;
    const ServerLoop::Answering answering(loop_);
    more = co_await guarded_exchange();
    drop_body();
  }
  idle_ = false;
  co_await stream_.end(kGoodbyeMs);
}

void Connection::close_idle() {
  boost::system::error_code ignored;
  if (idle_) stream_.socket().close(ignored);
}

bool Connection::close_silent() {
  if (!silent_ || !stream_.socket().is_open()) return false;
  boost::system::error_code ignored;
  stream_.socket().close(ignored);
  return true;
}

void Connection::end_reading(uint64_t round) {
  if (!reading_ || round != round_) return;  // it was read just now
  late_ = true;
  stream_.plain().cancel();
}

// Whether a request begins.
asio::awaitable<bool> Connection::wait_for_byte() {
  if (buffer_.size() > 0) co_return true;
  stream_.plain().expires_after(milliseconds(probe_ ? options_.probe_ms : options_.idle_ms));
  auto [code, n] = co_await stream_.async_read_some(buffer_.prepare(4096), kAwait);
  if (code) co_return false;
  buffer_.commit(n);
  co_return true;
}

// Whatever is thrown in it, most of all for want of memory, is told to the client and the log.
asio::awaitable<bool> Connection::guarded_exchange() {
  std::exception_ptr failure;
  try {
    co_return co_await exchange();
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  loop_.failed(failure);
  reading_ = false;
  drop_body();
  if (begun_) co_return false;
  const HttpReply reply =
      error_reply(Dialect::kOpenAi, 503, "request: wanted memory for it, found too little");
  loop_.answered({.peer = peer_, .id = id_}, reply, "");
  co_await write(reply, false);
  co_await stream_.linger(kGoodbyeMs);
  co_return false;
}

// Where it may not be asked here, or not now.
std::optional<HttpReply> Connection::without_place(const HttpRequest& request) {
  const bool drains = loop_.host().draining() && protocol_of(request);
  if (!drains && (!probe_ || is_probe(request.path))) return std::nullopt;
  loop_.metrics().refused(drains ? "drain" : "connections");
  HttpReply reply =
      error_reply(dialect_, 503,
                  drains ? "queue: the server is going down and takes no more requests"
                         : "connection: wanted one of " + std::to_string(options_.max_connections) +
                               " places, found all taken");
  reply.retry_after_s = drains ? loop_.drain_left_s() : 1;
  return reply;
}

// What is answered before the body of a request is read.
std::optional<HttpReply> Connection::unwelcome(const HttpRequest& request, const Parser& parser) {
  const Dialect dialect = dialect_;
  if (!has_known_end(parser.get())) {
    return error_reply(dialect, parser.get().version() == 11 ? 501 : 400,
                       "Transfer-Encoding: wanted chunked in HTTP/1.1, or none, found " +
                           quote(parser.get()[http::field::transfer_encoding]));
  }
  const auto encoding = parser.get()[http::field::content_encoding];
  if (!encoding.empty() && !beast::iequals(encoding, "identity")) {
    return error_reply(dialect, 415, "Content-Encoding: wanted none, found " + quote(encoding));
  }
  const auto expect = parser.get()[http::field::expect];
  if (!expect.empty() && !beast::iequals(expect, "100-continue")) {
    return error_reply(dialect, 417, "Expect: wanted 100-continue, found " + quote(expect));
  }
  if (auto none = without_place(request)) return none;
  const auto length = parser.content_length();
  const int64_t n_bytes = length             ? static_cast<int64_t>(*length)
                          : parser.chunked() ? options_.body_bytes_max
                                             : 0;
  if (n_bytes <= kCountedBodyBytes) return std::nullopt;
  if (loop_.hold_body(n_bytes)) {
    held_bytes_ = n_bytes;
    return std::nullopt;
  }
  loop_.metrics().refused("bodies");
  HttpReply reply =
      error_reply(dialect, 503,
                  "body: wanted at most " + std::to_string(options_.bodies_bytes_max) +
                      " bytes of all requests that are read, found more");
  reply.retry_after_s = 1;
  return reply;
}

void Connection::drop_body() { loop_.drop_body(std::exchange(held_bytes_, 0)); }

// One request and its answer; whether the connection goes on.
asio::awaitable<bool> Connection::exchange() {
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(options_.header_bytes_max));
  parser.body_limit(static_cast<uint64_t>(options_.body_bytes_max));
  // Not the stream's own time limit, which would close the socket before it got its answer.
  stream_.plain().expires_never();
  asio::steady_timer limit(loop_.io());
  loop_.limit_reading(limit, milliseconds(probe_ ? options_.probe_ms : options_.read_ms), number_,
                      ++round_);
  id_ = loop_.next_id();
  reading_ = true;
  late_ = head_only_ = begun_ = false;
  auto [code, n] = co_await http::async_read_header(stream_, buffer_, parser, kAwait);
  HttpRequest request;
  Gate::Entry entry;
  std::optional<HttpReply> refusal;
  request = head_of(parser.get());  // what came of it
  request.peer = peer_;
  request.id = id_;
  dialect_ = dialect_of(request.path);
  if (!code) {
    silent_ = false;
    head_only_ = request.method == "HEAD";
    entry = loop_.gate().enter(request);
    if (entry.wants_key) loop_.metrics().refused("key");
    refusal = entry.tenant ? unwelcome(request, parser) : std::move(entry.refusal);
  }
  // Who is turned away does not get to send a body.
  if (!code && !refusal) {
    const bool asks = !parser.get()[http::field::expect].empty() && buffer_.size() == 0;
    if (asks && !parser.is_done()) co_await send("HTTP/1.1 100 Continue\r\n\r\n");
    code = co_await read_body(parser);
  }
  reading_ = false;
  limit.cancel();
  if (code) {
    const HttpReply reply = unread(code, request);
    if (reply.status == 0) co_return false;
    co_await write(reply, false);
    co_await stream_.linger(kGoodbyeMs);
    co_return false;
  }
  auto& message = parser.get();
  if (refusal) {
    loop_.answered(request, *refusal, entry.tenant ? tenant_text(*entry.tenant) : entry.caller);
    const bool over = parser.is_done() && has_known_end(message);
    const bool keep = co_await write(*refusal, message.keep_alive() && over);
    if (!keep) co_await stream_.linger(kGoodbyeMs);
    co_return keep;
  }
  request.body = std::move(message.body());
  old_ = message.version() != 11;
  co_return co_await answer(request, *entry.tenant, message.keep_alive(), !old_);
}

asio::awaitable<boost::system::error_code> Connection::read_body(Parser& parser) {
  const std::string& body = parser.get().body();
  int64_t n_read = 0;
  while (!parser.is_done()) {
    const auto [code, n] = co_await http::async_read_some(stream_, buffer_, parser, kAwait);
    if (code) co_return code;
    n_read += static_cast<int64_t>(n);
    const auto n_body = static_cast<int64_t>(body.size());
    if (n_read - n_body > options_.header_bytes_max + kFramingOfBody * n_body) {
      co_return make_error_code(http::error::buffer_overflow);
    }
  }
  co_return boost::system::error_code();
}

// What to tell a client whose request could not be read; status 0: nothing.
HttpReply Connection::unread(boost::system::error_code code, const HttpRequest& request) {
  const Dialect dialect = dialect_;
  HttpReply reply = {.status = 0};
  if (code == http::error::body_limit) {
    reply = error_reply(
        dialect, 413,
        "body: wanted at most " + std::to_string(options_.body_bytes_max) + " bytes, found more");
  } else if (code == http::error::header_limit) {
    reply = error_reply(dialect, 431,
                        "header: wanted at most " + std::to_string(options_.header_bytes_max) +
                            " bytes, found more");
  } else if (code == http::error::buffer_overflow) {
    reply = error_reply(dialect, 431,
                        "chunks: wanted at most " + std::to_string(options_.header_bytes_max) +
                            " bytes of sizes, extensions and trailers, found more");
  } else if (late_) {
    reply =
        error_reply(dialect, 408,
                    "request: wanted all of it within " + std::to_string(options_.read_ms) + " ms");
  } else if (code == http::error::partial_message) {
    reply = error_reply(dialect, 400, "request: wanted all of it, found the end of what is sent");
  } else if (code.category() == make_error_code(http::error::bad_method).category() &&
             code != http::error::end_of_stream) {
    reply = error_reply(dialect, 400,
                        "request: wanted a well-formed HTTP/1.1 request, found: " + code.message());
  }
  if (reply.status != 0) loop_.answered(request, reply, "");
  return reply;
}

asio::awaitable<bool> Connection::send(const std::string& bytes, Waiting* waiting) {
  // Nearly always the socket takes it at once, which saves a time limit and a turn of the loop.
  boost::system::error_code code;
  const size_t n_taken = stream_.write_now(asio::buffer(bytes), code);
  if (!code && n_taken == bytes.size()) co_return true;
  if (code && code != asio::error::would_block) co_return false;
  stream_.plain().expires_after(milliseconds(options_.write_ms));
  if (waiting != nullptr) waiting->blocked = &stream_;
  const auto [failed, n] =
      co_await asio::async_write(stream_, asio::buffer(bytes) + n_taken, kAwait);
  if (waiting != nullptr) waiting->blocked = nullptr;
  stream_.plain().expires_never();
  co_return !failed;
}

asio::awaitable<bool> Connection::write(const HttpReply& reply, bool keep) {
  begun_ = true;
  keep = keep && !probe_ && !loop_.host().draining();
  http::response<http::string_body> message(static_cast<http::status>(reply.status), 11);
  message.set(http::field::content_type, reply.content_type);
  if (!reply.allow.empty()) message.set(http::field::allow, reply.allow);
  if (reply.status == 401) message.set(http::field::www_authenticate, "Bearer");
  if (reply.retry_after_s > 0) {
    message.set(http::field::retry_after, std::to_string(reply.retry_after_s));
  }
  for (const auto& [name, value] : reply.headers) message.set(name, value);
  message.set(kIdHeader, id_);
  if (dialect_ == Dialect::kAnthropic) message.set(kAnthropicIdHeader, id_);
  message.keep_alive(keep);
  if (!head_only_) message.body() = reply.body;
  message.prepare_payload();
  if (head_only_) message.content_length(reply.body.size());
  stream_.plain().expires_after(milliseconds(options_.write_ms));
  auto [code, n] = co_await http::async_write(stream_, message, kAwait);
  stream_.plain().expires_never();
  co_return !code && keep;
}

}  // namespace fathom
