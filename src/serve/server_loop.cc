#include "serve/server_loop.h"

#include <algorithm>
#include <new>
#include <span>

#include "base/hash.h"
#include "serve/connection.h"
#include "serve/routes.h"
#include "serve/tls.h"
#include "text/quote.h"

namespace fathom {
namespace {

constexpr size_t kLoggedErrorBytes = 400;
constexpr size_t kLoggedMethodBytes = 32;
constexpr size_t kShortBodyBytes = 65'536;
constexpr milliseconds kAcceptPauseMs = milliseconds(200);
constexpr double kTellAgainS = 60;

BuildFacts facts_of(const ServerOptions& options) {
  BuildFacts facts = {{"version", options.version}};
  facts.insert(facts.end(), options.build.begin(), options.build.end());
  return facts;
}

// Of this process alone.
std::string new_id_prefix() {
  const auto bytes = secret_bytes();
  return "req_" + to_hex(std::span(bytes).first(8));
}

// By what watches the server, each second or so.
bool is_asked_often(const std::string& path) {
  return path == "/health" || path == "/ready" || path == kConsoleState;
}

}  // namespace

Result<std::string> listen_address(const std::string& host) {
  if (host == "localhost") return std::string("127.0.0.1");
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string address = bracketed ? host.substr(1, host.size() - 2) : host;
  boost::system::error_code code;
  const auto made = asio::ip::make_address(address, code);
  if (code || bracketed != made.is_v6()) {
    return invalid("--listen: wanted an IP address, IPv6 in brackets, or localhost, found " +
                   quote(host));
  }
  return address;
}

ServerLoop::ServerLoop(ChatService& service, Engine& engine, const ServerOptions& options)
    : service_(service),
      engine_(engine),
      options_(options),
      gate_(options.keys),
      build_(facts_of(options)),
      id_prefix_(new_id_prefix()),
      acceptor_(io_),
      signals_(io_),
      hangups_(io_),
      drain_limit_(io_) {}

Result<void> ServerLoop::listen() {
  if (!options_.tls_certificate.empty()) {
    tls_.emplace(asio::ssl::context::tls_server);
    FATHOM_RETURN_IF_ERROR(load_certificate(*tls_, options_.tls_certificate, options_.tls_key));
  }
  const std::string where = options_.host + ":" + std::to_string(options_.port);
  boost::system::error_code code;
  const auto address = asio::ip::make_address(options_.host, code);
  if (code) return invalid("listen: wanted an IP address, found " + quote(options_.host));
  loopback_ = address.is_loopback();
  const tcp::endpoint endpoint(address, static_cast<uint16_t>(options_.port));
  acceptor_.open(endpoint.protocol(), code);
  if (!code) acceptor_.set_option(asio::socket_base::reuse_address(true), code);
  if (!code) acceptor_.bind(endpoint, code);
  if (!code) acceptor_.listen(asio::socket_base::max_listen_connections, code);
  if (code) return io_error("listen: " + where + ": wanted a free port, found: " + code.message());
  port_ = acceptor_.local_endpoint(code).port();
  watch_signals();
  return {};
}

void ServerLoop::run() {
  host_.emplace(engine_, [this](std::vector<Output> outputs) {
    asio::post(io_, [this, outputs = std::move(outputs)]() mutable { deliver(outputs); });
  });
  asio::co_spawn(io_, accept(), asio::detached);
  const auto until_stopped = asio::make_work_guard(io_);
  run_loop();
  over_ = true;
  for (asio::thread_pool* lane : {&short_lane_, &long_lane_}) {
    lane->stop();
    lane->join();
  }
  host_.reset();
}

// What is thrown inside a library's part of a connection, for want of memory, ends that connection
// and comes out here.
void ServerLoop::run_loop() {
  bool more = true;
  while (more) {
    try {
      io_.run();
      more = false;
    } catch (const std::exception&) {
      failed(std::current_exception());
      end_if_drained();
    }
  }
}

void ServerLoop::deliver(std::vector<Output>& outputs) {
  const double now_s = steady_seconds();
  for (Output& output : outputs) {
    const auto found = waiting_.find(output.request);
    if (found == waiting_.end()) continue;  // its client is gone
    Waiting& waiting = *found->second;
    metrics_.arrived(waiting.record, output, now_s);
    waiting.outputs.push_back(std::move(output));
    const auto n_waiting = static_cast<int64_t>(waiting.outputs.size());
    // Outputs that wait for this loop are not the client's fault.
    if (waiting.blocked != nullptr && n_waiting > options_.waiting_outputs_max &&
        !waiting.blocked->has_room()) {
      waiting.overrun = true;
      waiting.blocked->plain().cancel();  // the write that nobody takes
    }
    waiting.bell.cancel();
  }
}

void ServerLoop::stir_when(tcp::socket::wait_type state, tcp::socket& socket, RequestId id) {
  socket.async_wait(state, [this, id](boost::system::error_code code) {
    const auto found = waiting_.find(id);
    if (code || found == waiting_.end()) return;
    found->second->stirred = true;
    found->second->bell.cancel();
  });
}

asio::awaitable<void> ServerLoop::accept() {
  asio::steady_timer pause(io_);
  while (true) {
    auto [code, socket] = co_await acceptor_.async_accept(kAwait);
    if (!acceptor_.is_open()) co_return;
    const bool full =
        static_cast<int64_t>(connections_.size() - probes_.size()) >= options_.max_connections;
    if ((code || full) && (told_s_ == 0 || steady_seconds() - told_s_ > kTellAgainS)) {
      told_s_ = steady_seconds();
      log("- - connection: wanted a place, found " +
          (code ? code.message() : std::to_string(connections_.size()) + " connections"));
    }
    if (code) {  // of files, for instance, that will not be there again at once
      pause.expires_after(kAcceptPauseMs);
      co_await pause.async_wait(kAwait);
      if (!acceptor_.is_open()) co_return;
    } else if (!full || make_place_for_probe()) {
      begin(std::move(socket), full);
    }
  }
}

// Where all places of probes are taken, by the one that has been silent for longest.
bool ServerLoop::make_place_for_probe() {
  if (static_cast<int64_t>(probes_.size()) < options_.probe_connections) return true;
  metrics_.refused("connections");
  return std::ranges::any_of(
      probes_, [&](uint64_t number) { return connections_.at(number)->close_silent(); });
}

void ServerLoop::begin(tcp::socket socket, bool probe) {
  try {
    asio::co_spawn(io_, connection(std::move(socket), probe),
                   [this](const std::exception_ptr& failure) {
                     if (failure) failed(failure);
                     end_if_drained();
                   });
  } catch (const std::bad_alloc&) {
    failed(std::current_exception());
  }
}

asio::awaitable<void> ServerLoop::connection(tcp::socket socket, bool probe) {
  Connection connection(*this, std::move(socket), probe);
  co_await connection.serve();
}

bool ServerLoop::hold_body(int64_t n_bytes) {
  const int64_t most = std::max(options_.bodies_bytes_max, options_.body_bytes_max);
  if (n_bytes > most - body_bytes_) return false;
  body_bytes_ += n_bytes;
  return true;
}

asio::awaitable<void> ServerLoop::aside(size_t body_bytes, const std::function<void()>& work) {
  asio::thread_pool& lane = body_bytes > kShortBodyBytes ? long_lane_ : short_lane_;
  const auto run = [&work]() -> asio::awaitable<void> {
    work();
    co_return;
  };
  const auto [failure] = co_await asio::co_spawn(lane, run, kAwait);
  if (failure) std::rethrow_exception(failure);
}

void ServerLoop::cancel(RequestId id) {
  if (host_) host_->cancel(id);
}

uint64_t ServerLoop::enter(Connection& connection) {
  connections_.emplace(++last_connection_, &connection);
  if (connection.probe()) probes_.insert(last_connection_);
  return last_connection_;
}

void ServerLoop::leave(uint64_t number) {
  connections_.erase(number);
  probes_.erase(number);
}

std::string ServerLoop::next_id() { return id_prefix_ + std::to_string(++n_ids_); }

void ServerLoop::limit_reading(asio::steady_timer& timer, milliseconds time, uint64_t connection,
                               uint64_t round) {
  timer.expires_after(time);
  timer.async_wait([this, connection, round](boost::system::error_code stopped) {
    const auto found = connections_.find(connection);
    if (!stopped && found != connections_.end()) found->second->end_reading(round);
  });
}

asio::awaitable<std::optional<CacheReport>> ServerLoop::ask(CacheOrder order) {
  Asked asked(io_.get_executor());
  asked.bell.expires_at(asio::steady_timer::time_point::max());
  const uint64_t number = ++last_asked_;
  const Result<void> taken = host_->ask(order, [this, number](const CacheReport& report) {
    asio::post(io_, [this, number, report] {
      const auto found = asked_.find(number);
      if (found == asked_.end()) return;
      found->second->report = report;
      found->second->bell.cancel();
    });
  });
  if (!taken) co_return std::nullopt;
  asked_.emplace(number, &asked);
  while (!asked.report) co_await asked.bell.async_wait(kAwait);
  asked_.erase(number);
  co_return std::move(asked.report);
}

ServerView ServerLoop::view() const {
  const Mailbox& mailbox = engine_.mailbox();
  return {.model = service_.options().model_name,
          .version = options_.version,
          .draining = mailbox.closed(),
          .uptime_s = steady_seconds() - begun_s_,
          .n_connections = static_cast<int64_t>(connections_.size()),
          .n_live = mailbox.n_live(),
          .n_outputs = mailbox.n_outputs(),
          .limits = mailbox.limits()};
}

void ServerLoop::answered(const HttpRequest& request, const HttpReply& reply,
                          const std::string& tenant) {
  const std::string error = one_line(reply.error, kLoggedErrorBytes);
  answered(request, reply.status, tenant + (error.empty() ? "" : ": " + error));
}

void ServerLoop::answered(const HttpRequest& request, int status, const std::string& more) {
  metrics_.responded(route_label(request.path), status);
  if (status < 400 && is_asked_often(request.path)) return;
  const std::string method = request.method.substr(0, kLoggedMethodBytes);
  const bool plain = request.path == route_label(request.path);
  const std::string path = plain ? request.path : quote(request.path);
  log((method.empty() ? "-" : method) + " " + (path.empty() ? "-" : path) + " " +
      std::to_string(status) + " peer=" + request.peer + " id=" + request.id + more);
}

void ServerLoop::failed(const std::exception_ptr& failure) const {
  try {
    std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    log("- - connection: wanted memory, found none");
  } catch (const std::exception& other) {
    log(std::string("- - connection: ") + other.what());
  }
}

void ServerLoop::log(const std::string& line) const {
  if (options_.log) options_.log(line);
}

}  // namespace fathom
