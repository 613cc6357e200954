#pragma once

// Cache administration as values; the server carries the orders to the engine.
//
//   GET  /admin/cache        blocks by state and by tenant, counters, and each key's tenant: its
//   role, and the tag of its blocks in tiers
//   POST /admin/cache/clear  drops what nobody uses: all, or {"tenant": NAME}; the same, and how
//   many

#include <functional>
#include <string>

#include "base/result.h"
#include "engine/status.h"
#include "serve/http_message.h"
#include "serve/keys.h"

namespace fathom {

bool is_admin(const std::string& path);

// kInvalid: status 400.
Result<CacheOrder> admin_order(const HttpRequest& request, const KeyRing& keys);

// JSON of the answer. `tag_of` a tenant's salt for its blocks.
std::string cache_body(const CacheReport& report, const KeyRing& keys,
                       const std::function<uint64_t(const std::string& salt)>& tag_of);

}  // namespace fathom
