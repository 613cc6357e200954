#pragma once

// Gate: who calls, whether the key may do that, and what its tenant may still use. Without keys it
// is open: everybody is one tenant without limits, and nobody an administrator.
//
// Keys may be replaced while requests are under way. A tenant is known by its name: one that stays
// keeps its id, what it has under way and, where its limits stay, what it has used of them; one
// that goes ends what it began.
// Thread rule: one thread.

#include <map>
#include <optional>
#include <string>

#include "serve/http_message.h"
#include "serve/keys.h"

namespace fathom {

class Gate {
 public:
  explicit Gate(KeyRing keys);

  void replace(KeyRing keys);
  const KeyRing& keys() const { return keys_; }
  bool open() const { return keys_.empty(); }

  // Either the tenant, or the refusal (401: no key or an unknown one, 403: it may not do that).
  // For /health, /ready and the console's files, which ask for no key, the tenant without a name.
  struct Entry {
    std::optional<Tenant> tenant;
    HttpReply refusal;
    bool wants_key = false;  // another key would have been let in
    std::string caller;      // with 403, what the log says of the key's tenant
  };
  Entry enter(const HttpRequest& request) const;

  Quota& quota(const Tenant& tenant) { return places_.at(tenant.id).quota; }
  // For Request::tenant_salt.
  const std::string& salt(const Tenant& tenant) const { return places_.at(tenant.id).salt; }

 private:
  struct Place {
    Quota quota;
    std::string salt;
  };

  KeyRing keys_;
  const Tenant anybody_;
  std::map<std::string, TenantId> ids_;  // of every name that was ever there
  std::map<TenantId, Place> places_;
};

}  // namespace fathom
