#include "letter_stream.h"

#include <charconv>
#include <chrono>

#include "script.h"
#include "watch_file.h"

namespace fathom {
namespace {

namespace asio = boost::asio;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::string_view kContent = "\"content\":\"";

}  // namespace

bool EventReader::take_head() {
  const size_t end = raw_.find("\r\n\r\n");
  if (end == std::string::npos) return false;
  bad_ = !raw_.starts_with("HTTP/1.1 200 ");
  raw_.erase(0, end + 4);
  in_body_ = true;
  return true;
}

bool EventReader::take_chunk() {
  const size_t line = raw_.find("\r\n");
  if (line == std::string::npos) return false;
  size_t n = 0;
  const auto [at, code] = std::from_chars(raw_.data(), raw_.data() + line, n, 16);
  bad_ = bad_ || code != std::errc() || at != raw_.data() + line;
  if (bad_ || raw_.size() < line + 2 + n + 2) return false;
  body_.append(raw_, line + 2, n);
  raw_.erase(0, line + 2 + n + 2);
  ended_ = ended_ || n == 0;
  return true;
}

bool EventReader::feed(std::string_view bytes, const std::function<void(std::string_view)>& event) {
  raw_.append(bytes);
  if (!in_body_ && !take_head()) return !bad_;
  while (!bad_ && take_chunk()) {
  }
  size_t at = 0;
  for (size_t end = body_.find("\n\n"); end != std::string::npos; end = body_.find("\n\n", at)) {
    const std::string_view text = std::string_view(body_).substr(at, end - at);
    if (text.starts_with("data: ")) event(text.substr(6));
    at = end + 2;
  }
  body_.erase(0, at);
  return !bad_;
}

asio::awaitable<bool> LetterStream::connect(int port) {
  const asio::ip::tcp::endpoint server(asio::ip::address_v4::loopback(),
                                       static_cast<uint16_t>(port));
  auto [code] = co_await socket_.async_connect(server, kAwait);
  if (!code) socket_.set_option(asio::ip::tcp::no_delay(true), code);
  co_return !code;
}

asio::awaitable<bool> LetterStream::ask(double part) {
  std::string content;
  for (int64_t i = 0; i < n_words; ++i) content += "word" + std::to_string(i % 100) + " ";
  content += "stream " + std::to_string(stream_) + " letters " + std::to_string(n_letters_);
  const std::string body = R"({"messages":[{"role":"user","content":")" + content +
                           R"("}],"thinking":{"type":"disabled"},"stream":true,"max_tokens":)" +
                           std::to_string(n_letters_ + 1) + "}";
  std::string request = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                        std::to_string(body.size()) + "\r\n\r\n" + body;
  request.resize(static_cast<size_t>(static_cast<double>(request.size()) * part));
  auto [code, n] = co_await asio::async_write(socket_, asio::buffer(request), kAwait);
  co_return !code;
}

asio::awaitable<void> LetterStream::read() {
  char buffer[4096];
  while (!reader_.ended()) {
    auto [code, n] = co_await socket_.async_read_some(asio::buffer(buffer), kAwait);
    const int64_t ns = monotonic_ns();
    if (code) co_return;
    const bool right = reader_.feed({buffer, n}, [&](std::string_view data) { take(data, ns); });
    right_ = right_ && right;
    if (!right_) co_return;
  }
}

void LetterStream::take(std::string_view data, int64_t ns) {
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  const size_t at = data.find(kContent);
  if (at == std::string_view::npos) return;
  for (const char letter : data.substr(at + kContent.size())) {
    if (letter == '"') return;
    right_ = right_ && n_arrived_ < n_letters_ && letter == stream_letter(stream_, n_arrived_);
    if (right_ && arrived) arrived(n_arrived_, ns);
    ++n_arrived_;
  }
}

asio::awaitable<bool> LetterStream::vanish(int port, Vanishing how) {
  const bool connected = co_await connect(port);
  const bool asked = connected && co_await ask(how.part);
  if (!asked) co_return false;
  asio::steady_timer timer(socket_.get_executor(), std::chrono::microseconds(how.after_us));
  timer.async_wait([this, how](boost::system::error_code) { close(how.reset); });
  co_await read();
  timer.cancel();
  // Behind the timer's handler, which uses this object.
  co_await asio::post(socket_.get_executor(), kAwait);
  co_return true;
}

void LetterStream::close(bool reset) {
  boost::system::error_code code;
  if (reset) socket_.set_option(asio::socket_base::linger(true, 0), code);
  socket_.close(code);
}

}  // namespace fathom
