// Answers that need no call of the model.

#include "serve/admin.h"
#include "serve/connection.h"
#include "serve/console.h"
#include "serve/routes.h"

namespace fathom {

// `streams`: the client knows chunks.
asio::awaitable<bool> Connection::answer(HttpRequest& request, const Tenant& tenant, bool keep,
                                         bool streams) {
  if (const std::optional<Protocol> protocol = protocol_of(request)) {
    co_return co_await call(request, *protocol, tenant, keep && streams);
  }
  HttpReply reply;
  if (std::optional<HttpReply> none = no_route(request)) {
    reply = std::move(*none);
  } else if (is_admin(request.path)) {
    co_return co_await administer(request, tenant, keep);
  } else if (request.body.empty()) {
    reply = looked_up(request);
  } else {
    co_await loop_.aside(request.body.size(), [&] { reply = looked_up(request); });
  }
  loop_.answered(request, reply, tenant_text(tenant));
  co_return co_await write(reply, keep);
}

// What needs neither the model nor the engine's thread.
HttpReply Connection::looked_up(const HttpRequest& request) const {
  const EngineStatus status = loop_.host().status();
  if (request.path == kConsoleState) {
    return {.body = console_state(status, loop_.metrics(), loop_.view())};
  }
  if (request.path == "/metrics") {
    return {
        .body = loop_.metrics().text(status, loop_.service().options().model_name, loop_.build()),
        .content_type = "text/plain; version=0.0.4; charset=utf-8"};
  }
  return plain_reply(request, loop_.service(), loop_.build(), loop_.host().draining());
}

asio::awaitable<bool> Connection::administer(const HttpRequest& request, const Tenant& tenant,
                                             bool keep) {
  HttpReply reply;
  const KeyRing& keys = loop_.gate().keys();
  const Result<CacheOrder> order = admin_order(request, keys);
  if (!order) {
    reply = error_reply(Dialect::kOpenAi, 400, order.error().message);
  } else if (const auto report = co_await loop_.ask(*order)) {
    reply.body = cache_body(*report, loop_.gate().keys(),
                            [&](const std::string& salt) { return loop_.host().tag_of(salt); });
  } else {
    reply = error_reply(Dialect::kOpenAi, 503, "cache: the server is going down");
    reply.retry_after_s = loop_.drain_left_s();
  }
  loop_.answered(request, reply, tenant_text(tenant));
  co_return co_await write(reply, keep);
}

}  // namespace fathom
