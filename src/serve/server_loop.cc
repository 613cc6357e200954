#include "serve/server_loop.h"

#include "serve/connection.h"
#include "serve/routes.h"
#include "serve/tls.h"

namespace fathom {
namespace {

constexpr size_t kLoggedPathMax = 200;

}  // namespace

ServerLoop::ServerLoop(ChatService& service, Engine& engine, const ServerOptions& options)
    : service_(service),
      engine_(engine),
      options_(options),
      gate_(options.keys),
      acceptor_(io_),
      signals_(io_) {}

Result<void> ServerLoop::listen() {
  if (!options_.tls_certificate.empty()) {
    tls_.emplace(asio::ssl::context::tls_server);
    FATHOM_RETURN_IF_ERROR(load_certificate(*tls_, options_.tls_certificate, options_.tls_key));
  }
  const std::string where = options_.host + ":" + std::to_string(options_.port);
  boost::system::error_code code;
  const auto address = asio::ip::make_address(options_.host, code);
  if (code) return invalid("listen: wanted an IP address, found " + options_.host);
  loopback_ = address.is_loopback();
  const tcp::endpoint endpoint(address, static_cast<uint16_t>(options_.port));
  acceptor_.open(endpoint.protocol(), code);
  if (!code) acceptor_.set_option(asio::socket_base::reuse_address(true), code);
  if (!code) acceptor_.bind(endpoint, code);
  if (!code) acceptor_.listen(asio::socket_base::max_listen_connections, code);
  if (code) return io_error("listen: " + where + ": wanted a free port, found: " + code.message());
  port_ = acceptor_.local_endpoint(code).port();
  if (options_.end_at_signals) {  // one that comes before run() is kept
    signals_.add(SIGTERM, code);
    signals_.add(SIGINT, code);
  }
  return {};
}

void ServerLoop::run() {
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

void ServerLoop::stop() {
  asio::post(io_, [this] { drain(); });
}

// Takes nothing more; once the last answer is out the loop ends.
void ServerLoop::drain() {
  host_->drain();
  boost::system::error_code code;
  acceptor_.close(code);
  signals_.cancel(code);
  for (const auto& [number, connection] : connections_) connection->close_idle();
  end_if_drained();
}

void ServerLoop::end_if_drained() {
  if (host_->draining() && n_answering_ == 0) io_.stop();
}

void ServerLoop::deliver(std::vector<Output>& outputs) {
  const double now_s = steady_seconds();
  for (Output& output : outputs) {
    const auto found = waiting_.find(output.request);
    if (found == waiting_.end()) continue;  // its client is gone
    Waiting& waiting = *found->second;
    metrics_.arrived(waiting.record, output, now_s);
    waiting.outputs.push_back(std::move(output));
    if (static_cast<int64_t>(waiting.outputs.size()) > options_.waiting_outputs_max) {
      waiting.overrun = true;
    }
    waiting.bell.cancel();
  }
}

void ServerLoop::stir_when_readable(tcp::socket& socket, RequestId id) {
  socket.async_wait(tcp::socket::wait_read, [this, id](boost::system::error_code code) {
    const auto found = waiting_.find(id);
    if (code || found == waiting_.end()) return;
    found->second->stirred = true;
    found->second->bell.cancel();
  });
}

asio::awaitable<void> ServerLoop::accept() {
  while (true) {
    auto [code, socket] = co_await acceptor_.async_accept(kAwait);
    if (!acceptor_.is_open()) co_return;
    const auto n_connections = static_cast<int64_t>(connections_.size());
    if (code || n_connections >= options_.max_connections) continue;
    asio::co_spawn(io_, connection(std::move(socket)), asio::detached);
  }
}

asio::awaitable<void> ServerLoop::connection(tcp::socket socket) {
  {
    Connection connection(*this, std::move(socket));
    co_await connection.serve();
  }
  if (host_->draining()) end_if_drained();
}

uint64_t ServerLoop::enter(Connection& connection) {
  connections_.emplace(++last_connection_, &connection);
  return last_connection_;
}

void ServerLoop::leave(uint64_t number) { connections_.erase(number); }

void ServerLoop::limit_reading(asio::steady_timer& timer, uint64_t connection, uint64_t round) {
  timer.expires_after(milliseconds(options_.read_ms));
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

void ServerLoop::answered(const HttpRequest& request, int status, const std::string& more) {
  metrics_.responded(is_route(request.path) ? request.path : "", status);
  log((request.method.empty() ? "-" : request.method) + " " +
      (request.path.empty() ? "-" : request.path.substr(0, kLoggedPathMax)) + " " +
      std::to_string(status) + more);
}

void ServerLoop::log(const std::string& line) const {
  if (options_.log) options_.log(line);
}

}  // namespace fathom
