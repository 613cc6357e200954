#include "serve/admin.h"

#include <boost/json.hpp>
#include <cstdio>

#include "text/json_output.h"
#include "text/json_text.h"
#include "text/quote.h"

namespace fathom {
namespace {

namespace json = boost::json;

std::string name_of(TenantId id, const KeyRing& keys) {
  for (const Tenant& tenant : keys.tenants()) {
    if (tenant.id == id) return tenant.name;
  }
  return "";
}

// As `fathom store` shows it.
std::string tag_text(uint64_t tag) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(tag));
  return text;
}

}  // namespace

bool is_admin(const std::string& path) { return path.starts_with("/admin/"); }

Result<CacheOrder> admin_order(const HttpRequest& request, const KeyRing& keys) {
  CacheOrder order = {.clear = request.path == "/admin/cache/clear"};
  if (!order.clear || request.body.empty()) return order;
  // Of two equal members, one would be an order that is not carried out.
  const Result<Json> body = parse_json(request.body, {.repeated_keys = false});
  if (!body) return invalid("body: " + body.error().message);
  if (body->as_object() == nullptr) {
    return invalid(std::string("body: wanted an object, found ") + body->kind_name());
  }
  for (const auto& [key, value] : *body->as_object()) {
    if (key != "tenant") return invalid("body: wanted the member tenant, found " + quote(key));
    const std::string* name = value.as_string();
    const Tenant* tenant = name == nullptr ? nullptr : keys.named(*name);
    if (tenant == nullptr) {
      return invalid("tenant: wanted the name of a key, found " +
                     (name == nullptr ? value.kind_name() : quote(*name)));
    }
    order.tenant = tenant->id;
  }
  return order;
}

std::string cache_body(const CacheReport& report, const KeyRing& keys,
                       const std::function<uint64_t(const std::string& salt)>& tag_of) {
  const EngineStatus& status = report.status;
  const int64_t n_pinned = status.load.n_pinned_blocks;
  json::array tenants;
  for (const auto& [id, n] : report.cached_blocks) {
    tenants.push_back(json::object{{"name", name_of(id, keys)}, {"blocks", n}});
  }
  json::array listed;
  for (const Tenant& tenant : keys.tenants()) {
    listed.push_back(json::object{{"name", tenant.name},
                                  {"role", key_role_name(tenant.role)},
                                  {"tag", tag_text(tag_of(cache_salt(tenant)))}});
  }
  return json_output(json::object{{"cleared", report.n_cleared},
                                  {"cleared_states", report.n_states_cleared},
                                  {"states", status.load.n_sessions},
                                  {"block_tokens", kBlockTokens},
                                  {"blocks",
                                   {{"total", status.n_blocks},
                                    {"pinned", n_pinned},
                                    {"cached", status.n_idle_blocks},
                                    {"free", status.n_blocks - n_pinned - status.n_idle_blocks}}},
                                  {"tenants", tenants},
                                  {"keys", listed},
                                  {"lookups", status.prefix.lookups},
                                  {"wanted_blocks", status.prefix.wanted_blocks},
                                  {"hit_blocks", status.prefix.hit_blocks},
                                  {"evicted_blocks", status.prefix.evicted}});
}

}  // namespace fathom
