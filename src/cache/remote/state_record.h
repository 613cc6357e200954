#pragma once

// A state of a sequence as one record of the store's format, and back.

#include <span>
#include <vector>

#include "cache/state_tier.h"
#include "cache/store/record.h"

namespace fathom {

// Of a payload, before the state.
inline constexpr int64_t kStateHeadBytes = 8;

// That of records of states, of which `identity` says how large they are.
inline StoreIdentity record_identity(StoreIdentity identity) {
  identity.block_bytes += kStateHeadBytes;
  return identity;
}

// A record with the state's bytes in place, to be sealed later: the copy is all that the engine's
// thread does.
struct StateRecord {
  StateLabel label;
  int64_t payload_bytes = 0;
  std::vector<std::byte> bytes;
};
StateRecord state_record(const StateLabel& label, const SessionState& state);
void seal_state(StateRecord& record, const StoreIdentity& identity);

// kInvalid, with the check that failed, where it is not a sound record of that very state.
Result<SessionState> open_state(std::span<const std::byte> bytes, const StateLabel& label,
                                const StoreIdentity& identity);

}  // namespace fathom
