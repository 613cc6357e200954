#pragma once

// API keys. Each names a tenant: who it is in logs and metrics, how much it may use, and what its
// prefix cache is rooted in. A key is 192 random bits, so that its plain SHA-256 says nothing about
// it and is what is kept; a slow hash would protect guessable words, and cost a caller's every
// request.
//
// Thread rule: const after it is made.

#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/result.h"
#include "engine/request.h"
#include "serve/quota.h"

namespace fathom {

enum class KeyRole : uint8_t {
  kUser,     // models are used with it
  kMetrics,  // reads /metrics and nothing else
  kAdmin,    // everything
};
std::optional<KeyRole> key_role(std::string_view name);
const char* key_role_name(KeyRole role);

struct Tenant {
  TenantId id = {};       // set by the ring, or by who numbers it
  std::string name;       // 1 to 64 letters, digits, '.', '_', '-'
  Sha256Digest key = {};  // SHA-256 of the key's text
  std::string salt;       // of its prefix cache, 16 to 128 bytes; a new one forgets what was cached
  KeyRole role = KeyRole::kUser;
  double weight = 1;  // share of slots and rows beside other tenants
  int priority = 0;   // of its requests (engine/request.h)
  QuotaLimits quota;
};

// What the log says of it; nothing where it has no name.
std::string tenant_text(const Tenant& tenant);

class KeyRing {
 public:
  // kInvalid where the name, a number or the salt is out of its bounds, or where another tenant has
  // the same name, key or salt.
  Result<void> add(Tenant tenant);
  // Takes the same time whichever it is; nullptr: nobody's.
  const Tenant* find(std::string_view key) const;
  const Tenant* named(std::string_view name) const;

  // Gives each tenant the id that `id_of` says for its name.
  template <typename IdOf>
  void number(IdOf id_of) {
    for (Tenant& tenant : tenants_) tenant.id = id_of(tenant.name);
  }

  const std::deque<Tenant>& tenants() const { return tenants_; }
  bool empty() const { return tenants_.empty(); }

 private:
  std::deque<Tenant> tenants_;
};

// What roots the keys of the tenant's blocks: a digest of both, each framed by its length.
std::string cache_salt(const Tenant& tenant);

// The tenants of a TOML file, tables [[key]] with the members of Tenant and QuotaLimits; `sha256`
// is in hexadecimal, and all but name, sha256 and salt may be left out. Errors name `where`, the
// line and the member.
Result<KeyRing> read_keys(const std::string& text, const std::string& where);

// A key that was never there before, and the table [[key]] that admits it. kInvalid: the name, or
// a limit out of its bounds.
struct NewKey {
  std::string key;
  std::string table;
};
Result<NewKey> make_key(const std::string& name, KeyRole role = KeyRole::kUser,
                        const QuotaLimits& limits = {});

// A tenant of all rights for one key that stands in no file. kInvalid: it is shorter than 16 bytes.
Result<Tenant> only_tenant(std::string_view key);

}  // namespace fathom
