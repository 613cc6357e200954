#include "cache/store/seal.h"

namespace fathom {
namespace {

Sha256Digest key_check(const SecretKey& key, const Sha256Digest& salt) {
  return derive_key(key, salt, "fathom store: key check");
}

}  // namespace

StoreSeal make_seal(const SecretKey& key) {
  StoreSeal seal;
  seal.salt = secret_bytes();
  seal.key_check = key_check(key, seal.salt);
  return seal;
}

Result<std::unique_ptr<const Sealer>> open_seal(const std::string& where,
                                                const StoreIdentity& identity,
                                                const std::optional<SecretKey>& key) {
  if (!identity.seal && !key) return std::unique_ptr<const Sealer>();
  if (!identity.seal) return invalid(where + ": wanted it sealed with the key, found it in clear");
  if (!key) return invalid(where + ": wanted the key that it is sealed with, found none");
  const StoreSeal& seal = *identity.seal;
  if (!equal_in_constant_time(key_check(*key, seal.salt), seal.key_check)) {
    return invalid(where + ": wanted the key that it is sealed with, found another");
  }
  return std::unique_ptr<const Sealer>(
      std::make_unique<Sealer>(derive_key(*key, seal.salt, "fathom store: payloads")));
}

}  // namespace fathom
