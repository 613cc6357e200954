#pragma once

// ByteStream: the bytes of a connection, plain or inside TLS, as one AsyncStream of Asio, so that
// what stands above is written once.

#include <poll.h>

#include <array>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <chrono>
#include <optional>

namespace fathom {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using std::chrono::milliseconds;

// An error comes back as a value, never as an exception.
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

class ByteStream {
 public:
  typedef beast::tcp_stream::executor_type executor_type;  // Asio's name

  // Without `tls` the bytes are plain.
  ByteStream(tcp::socket socket, asio::ssl::context* tls) : tcp_(std::move(socket)) {
    boost::system::error_code ignored;
    tcp_.socket().non_blocking(true, ignored);
    if (tls != nullptr) tls_.emplace(tcp_, *tls);
  }
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  executor_type get_executor() { return tcp_.get_executor(); }
  beast::tcp_stream& plain() { return tcp_; }
  tcp::socket& socket() { return tcp_.socket(); }
  bool secure() const { return tls_.has_value(); }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Token>(token));
    return tcp_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Token>(token));
    return tcp_.async_write_some(buffers, std::forward<Token>(token));
  }

  // How much of it is taken without waiting: nothing inside TLS.
  size_t write_now(asio::const_buffer bytes, boost::system::error_code& code) {
    if (tls_) return 0;
    return tcp_.socket().write_some(bytes, code);
  }

  // What begins a connection; at once where it is plain.
  asio::awaitable<boost::system::error_code> begin(milliseconds limit) {
    if (!tls_) co_return boost::system::error_code();
    tcp_.expires_after(limit);
    const auto [code] = co_await tls_->async_handshake(asio::ssl::stream_base::server, kAwait);
    co_return code;
  }

  // Says goodbye where TLS has a word for it, and closes.
  asio::awaitable<void> end(milliseconds limit) {
    if (tls_ && tcp_.socket().is_open()) {
      tcp_.expires_after(limit);
      co_await tls_->async_shutdown(kAwait);
    }
    boost::system::error_code ignored;
    tcp_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    tcp_.close();
  }

  // Reads on for a moment: a connection closed on unread bytes is reset, and the answer lost. Where
  // there is always more to read the stream's own limit never comes to its turn.
  asio::awaitable<void> linger(milliseconds limit) {
    boost::system::error_code code;
    tcp_.socket().shutdown(tcp::socket::shutdown_send, code);
    tcp_.expires_after(limit);
    const auto end = std::chrono::steady_clock::now() + limit;
    std::array<char, 4096> ignored;
    while (!code && std::chrono::steady_clock::now() < end) {
      const auto [failed, n] = co_await tcp_.async_read_some(asio::buffer(ignored), kAwait);
      code = failed;
    }
    tcp_.close();
  }

  // Whether the socket has room: what is unsent then waits for this program, not for the client.
  bool has_room() {
    pollfd state = {.fd = tcp_.socket().native_handle(), .events = POLLOUT, .revents = 0};
    return ::poll(&state, 1, 0) > 0;
  }

  // Whether the client sends no more, looked for behind what it sent already. It may have gone, or
  // read on: that shows where bytes are sent to it.
  bool ended() { return polled(POLLRDHUP) != 0; }

  // Whether bytes that were sent came back as undeliverable.
  bool broken() { return (polled(0) & (POLLHUP | POLLERR)) != 0; }

 private:
  int polled(int16_t events) {
    pollfd state = {.fd = tcp_.socket().native_handle(), .events = events, .revents = 0};
    return ::poll(&state, 1, 0) > 0 ? state.revents : 0;
  }

  beast::tcp_stream tcp_;
  std::optional<asio::ssl::stream<beast::tcp_stream&>> tls_;
};

}  // namespace fathom
