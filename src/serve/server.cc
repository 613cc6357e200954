#include "serve/server.h"

#include "serve/open_files.h"
#include "serve/server_loop.h"

namespace fathom {

Result<std::unique_ptr<Server>> Server::listen(ChatService& service, Engine& engine,
                                               const ServerOptions& options) {
  ServerOptions fitted = options;
  fitted.max_connections = connections_allowed(options.max_connections);
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
void Server::read_keys_again() { loop_->read_keys_again(); }

}  // namespace fathom
