#pragma once

// The seal of a store: which key its payloads are sealed with, and whether a key is that one. Salt
// and key check stand in the card; a key in memory alone. Thread rule: functions, any thread.

#include <memory>
#include <optional>
#include <string>

#include "base/seal.h"
#include "cache/store/record.h"

namespace fathom {

// Of a new store; draws its salt.
StoreSeal make_seal(const SecretKey& key);

// What payloads are sealed and unsealed with; null: they are in clear. kInvalid, with `where`,
// where the key is missing, another one, or not needed.
Result<std::unique_ptr<const Sealer>> open_seal(const std::string& where,
                                                const StoreIdentity& identity,
                                                const std::optional<SecretKey>& key);

}  // namespace fathom
