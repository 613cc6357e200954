#pragma once

// LetterStream: a client of scripted_server that asks for one stream of letters and looks at every
// letter that comes. Thread rule: one.

#include <boost/asio.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace fathom {

// Takes HTTP/1.1 answers with chunks apart.
class EventReader {
 public:
  // Calls `event` with the data of each event that is complete now. False: not what was expected.
  bool feed(std::string_view bytes, const std::function<void(std::string_view)>& event);
  // The last chunk has come.
  bool ended() const { return ended_; }

 private:
  bool take_head();
  bool take_chunk();

  std::string raw_;
  std::string body_;
  bool in_body_ = false;
  bool bad_ = false;
  bool ended_ = false;
};

// A client that goes away.
struct Vanishing {
  double part = 1;       // of its request that it sends
  int64_t after_us = 0;  // from then on
  bool reset = false;    // the connection, instead of closing it
};

class LetterStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  LetterStream(boost::asio::io_context& io, int64_t stream, int64_t n_letters)
      : stream_(stream), n_letters_(n_letters), socket_(io) {}

  // Of its prompt, before the question.
  int64_t n_words = 0;
  // Called when letter k has arrived, at monotonic_ns().
  std::function<void(int64_t k, int64_t ns)> arrived;

  boost::asio::awaitable<bool> connect(int port);
  // All of the request, or its first bytes alone.
  boost::asio::awaitable<bool> ask(double part = 1);
  // Until the stream ends or breaks.
  boost::asio::awaitable<void> read();
  // All of a life that ends so, or with the stream. False: nobody took its request.
  boost::asio::awaitable<bool> vanish(int port, Vanishing how);

  int64_t stream() const { return stream_; }
  int64_t n_arrived() const { return n_arrived_; }
  bool right() const { return right_; }
  // Every letter in its place, and an orderly end.
  bool whole() const { return right_ && done_ && reader_.ended() && n_arrived_ == n_letters_; }

 private:
  void close(bool reset);
  void take(std::string_view data, int64_t ns);

  const int64_t stream_;
  const int64_t n_letters_;
  Socket socket_;
  EventReader reader_;
  int64_t n_arrived_ = 0;
  bool right_ = true;
  bool done_ = false;
};

}  // namespace fathom
