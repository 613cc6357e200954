#include "serve/server.h"

#include <algorithm>

#include "serve/open_files.h"
#include "serve/server_loop.h"

namespace fathom {

Result<std::unique_ptr<Server>> Server::listen(ChatService& service, Engine& engine,
                                               const ServerOptions& options) {
  ServerOptions fitted = options;
  const int64_t n_probes = options.probe_connections;
  fitted.max_connections =
      std::max<int64_t>(1, connections_allowed(options.max_connections + n_probes) - n_probes);
  auto loop = std::make_unique<ServerLoop>(service, engine, fitted);
  FATHOM_RETURN_IF_ERROR(loop->listen());
  return std::unique_ptr<Server>(new Server(std::move(loop)));
}

Server::Server(std::unique_ptr<ServerLoop> loop) : loop_(std::move(loop)) {}
Server::~Server() = default;
int Server::port() const { return loop_->port(); }
bool Server::unguarded() const { return loop_->unguarded(); }
void Server::run() { loop_->run(); }
void Server::stop() { loop_->stop(); }
void Server::read_again() { loop_->read_again(); }

}  // namespace fathom
