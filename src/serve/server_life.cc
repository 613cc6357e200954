// What ends a server, and what signals tell it.

#include <csignal>

#include "serve/connection.h"
#include "serve/server_loop.h"

namespace fathom {
namespace {

constexpr milliseconds kGoodbyeMs = milliseconds(1000);

}  // namespace

// One that comes before run() is kept.
void ServerLoop::watch_signals() {
  if (!options_.end_at_signals) return;
  boost::system::error_code code;
  signals_.add(SIGTERM, code);
  signals_.add(SIGINT, code);
  signals_.async_wait([this](boost::system::error_code failed, int) {
    if (!failed) drain();
  });
  if (!options_.read_keys) return;  // it ends the process, as it does any
  hangups_.add(SIGHUP, code);
  wait_for_hangup();
}

void ServerLoop::wait_for_hangup() {
  hangups_.async_wait([this](boost::system::error_code failed, int) {
    if (failed) return;
    read_keys();
    wait_for_hangup();
  });
}

void ServerLoop::read_keys_again() {
  asio::post(io_, [this] { read_keys(); });
}

void ServerLoop::read_keys() {
  Result<KeyRing> ring = options_.read_keys ? options_.read_keys() : Result<KeyRing>(KeyRing());
  if (!ring || ring->empty()) {
    log("- - keys: kept as they were: " +
        (ring ? "wanted keys to read again, found none" : ring.error().message));
    return;
  }
  const size_t n = ring->tenants().size();
  gate_.replace(std::move(*ring));
  log("- - keys: read again, " + std::to_string(n) + " of them");
}

void ServerLoop::stop() {
  asio::post(io_, [this] { drain(); });
}

// Takes nothing more; once the last answer is out the loop ends.
void ServerLoop::drain() {
  if (host_->draining()) return;
  host_->drain();
  boost::system::error_code code;
  acceptor_.close(code);
  signals_.clear(code);  // the next one ends the process, as it does any
  drain_limit_.expires_after(milliseconds(options_.drain_ms));
  drain_limit_.async_wait([this](boost::system::error_code stopped) {
    if (!stopped) cut_off();
  });
  for (const auto& [number, connection] : connections_) connection->close_idle();
  end_if_drained();
}

// Ends what is live; what does not even take its end is left.
void ServerLoop::cut_off() {
  log("- - drain: wanted an end of all requests within " + std::to_string(options_.drain_ms) +
      " ms, found " + std::to_string(n_answering_) + " more, which are cut off");
  for (const auto& [id, waiting] : waiting_) {
    waiting->cut = true;
    host_->cancel(id);
    waiting->bell.cancel();
  }
  drain_limit_.expires_after(kGoodbyeMs);
  drain_limit_.async_wait([this](boost::system::error_code stopped) {
    if (!stopped) io_.stop();
  });
}

void ServerLoop::end_if_drained() {
  if (host_->draining() && n_answering_ == 0) io_.stop();
}

}  // namespace fathom
