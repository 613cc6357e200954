// What ends a server, and what signals tell it.

#include <algorithm>
#include <cmath>
#include <csignal>

#include "serve/connection.h"
#include "serve/server_loop.h"
#include "serve/tls.h"

namespace fathom {
namespace {

constexpr milliseconds kGoodbyeMs = milliseconds(1000);

// As `nohup` has it.
bool hangup_is_ignored() {
  struct sigaction now = {};
  return ::sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

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
  if (!options_.read_keys && !tls_ && hangup_is_ignored()) return;
  hangups_.add(SIGHUP, code);
  wait_for_hangup();
}

void ServerLoop::wait_for_hangup() {
  hangups_.async_wait([this](boost::system::error_code failed, int) {
    if (failed) return;
    if (options_.read_keys || tls_) {
      if (options_.read_keys) read_keys();
      read_certificate();
    } else {
      log("- - hangup: wanted keys or a certificate to read again, found neither: it ends");
      drain();
    }
    wait_for_hangup();
  });
}

void ServerLoop::read_again() {
  asio::post(io_, [this] {
    read_keys();
    read_certificate();
  });
}

// Connections that are there go on with what they have agreed on.
void ServerLoop::read_certificate() {
  if (!tls_) return;
  asio::ssl::context fresh(asio::ssl::context::tls_server);
  const Result<void> loaded = load_certificate(fresh, options_.tls_certificate, options_.tls_key);
  if (loaded) tls_ = std::move(fresh);
  log(loaded ? "- - tls: certificate and key read again"
             : "- - tls: certificate and key kept as they were: " + loaded.error().message);
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

// Takes no more calls; once the last answer is out the loop ends. Whoever asks until then is told:
// a client that finds the port closed cannot know that it may come again.
void ServerLoop::drain() {
  if (host_->draining()) return;
  host_->drain();
  boost::system::error_code code;
  signals_.clear(code);  // the next one ends the process, as it does any
  drain_end_s_ = steady_seconds() + 1e-3 * static_cast<double>(options_.drain_ms);
  drain_limit_.expires_after(milliseconds(options_.drain_ms));
  drain_limit_.async_wait([this](boost::system::error_code stopped) {
    if (!stopped) cut_off();
  });
  end_if_drained();
}

int64_t ServerLoop::drain_left_s() const {
  return std::max<int64_t>(1, std::lround(drain_end_s_ - steady_seconds()));
}

ServerLoop::Answering::~Answering() {
  if (!late_) --loop_.n_answering_;
  // What still waits when the loop is over goes with it.
  if (loop_.over_ || !loop_.host().draining()) return;
  asio::post(loop_.io_, [&loop = loop_] { loop.end_if_drained(); });
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

// Requests that came while it drained have a moment to get their answers.
void ServerLoop::end_if_drained() {
  if (!host_->draining() || n_answering_ > 0) return;
  if (acceptor_.is_open()) {
    boost::system::error_code code;
    acceptor_.close(code);
    for (const auto& [number, connection] : connections_) connection->close_idle();
    drain_limit_.expires_after(kGoodbyeMs);
    drain_limit_.async_wait([this](boost::system::error_code stopped) {
      if (!stopped) io_.stop();
    });
  }
  if (connections_.empty()) io_.stop();
}

}  // namespace fathom
