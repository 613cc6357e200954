#include "serve/gate.h"

#include "serve/admin.h"
#include "serve/console.h"
#include "serve/routes.h"
#include "text/quote.h"

namespace fathom {
namespace {

// What a path asks for; nothing: no key.
std::optional<KeyRole> needed_role(const std::string& path) {
  if (is_probe(path) || is_console_file(path)) return std::nullopt;
  if (path == "/metrics" || path == kConsoleState) return KeyRole::kMetrics;
  return is_admin(path) ? KeyRole::kAdmin : KeyRole::kUser;
}

}  // namespace

Gate::Gate(KeyRing keys) {
  places_.emplace(anybody_.id, Place{Quota({}), ""});
  replace(std::move(keys));
}

void Gate::replace(KeyRing keys) {
  keys.number([&](const std::string& name) {
    const auto next = static_cast<TenantId>(ids_.size() + 1);  // 0: anybody
    return ids_.try_emplace(name, next).first->second;
  });
  for (const Tenant& tenant : keys.tenants()) {
    const auto place = places_.try_emplace(tenant.id, Place{Quota(tenant.quota), ""}).first;
    place->second.quota.set_limits(tenant.quota);
    place->second.salt = cache_salt(tenant);
  }
  keys_ = std::move(keys);
}

Gate::Entry Gate::enter(const HttpRequest& request) const {
  const Dialect dialect = dialect_of(request.path);
  const std::optional<KeyRole> needed = needed_role(route_path(request.path));
  if (!needed || (open() && *needed != KeyRole::kAdmin)) return {.tenant = anybody_};
  if (open()) {
    return {.refusal = error_reply(
                dialect, 403,
                (route_label(request.path).empty() ? quote(request.path) : request.path) +
                    ": wanted a server with keys, found none")};
  }
  if (request.key.empty()) {
    return {
        .refusal = error_reply(
            dialect, 401, "key: wanted Authorization: Bearer KEY or x-api-key: KEY, found neither"),
        .wants_key = true};
  }
  const Tenant* tenant = keys_.find(request.key);
  if (tenant == nullptr) {
    return {.refusal = error_reply(dialect, 401, "key: wanted a key of this server, found another"),
            .wants_key = true};
  }
  if (tenant->role != KeyRole::kAdmin && tenant->role != *needed) {
    return {.refusal =
                error_reply(dialect, 403,
                            std::string("key: wanted one of the role ") + key_role_name(*needed) +
                                ", found one of the role " + key_role_name(tenant->role)),
            .wants_key = true,
            .caller = tenant_text(*tenant)};
  }
  return {.tenant = *tenant};
}

}  // namespace fathom
