#pragma once

// Cache administration as values; the server carries the orders to the engine.
//
//   GET  /admin/cache        blocks by state and by tenant, counters
//   POST /admin/cache/clear  drops what nobody uses: all, or {"tenant": NAME}; the same, and how
//   many

#include <string>

#include "base/result.h"
#include "engine/status.h"
#include "serve/http_message.h"
#include "serve/keys.h"

namespace fathom {

bool is_admin(const std::string& path);

// kInvalid: status 400.
Result<CacheOrder> admin_order(const HttpRequest& request, const KeyRing& keys);

// JSON of the answer.
std::string cache_body(const CacheReport& report, const KeyRing& keys);

}  // namespace fathom
