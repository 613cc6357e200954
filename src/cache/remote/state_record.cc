#include "cache/remote/state_record.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace fathom {
namespace {

// The length of the windows, in front of them.
constexpr auto kLengthBytes = static_cast<size_t>(kStateHeadBytes);
static_assert(kLengthBytes == sizeof(uint64_t));

TierBlock block_of(const StateLabel& label) {
  return {.key = label.name.key,
          .parent = label.name.parent,
          .first_position = label.n_tokens,
          .tenant_tag = label.tenant_tag,
          .grade = label.grade};
}

// A record tells its place, as those of a segment do; one that came from under another name is
// none.
RecordPlace place_of(const BlockKey& key) {
  RecordPlace place;
  std::memcpy(&place.segment, key.digest.data(), sizeof(place.segment));
  std::memcpy(&place.page, key.digest.data() + sizeof(place.segment), sizeof(place.page));
  return place;
}

}  // namespace

StateRecord state_record(const StateLabel& label, const SessionState& state) {
  StateRecord record = {.label = label, .payload_bytes = kStateHeadBytes + state.bytes()};
  record.bytes.resize(static_cast<size_t>(record_bytes(record.payload_bytes)));
  std::byte* at = record.bytes.data() + kRecordHeadBytes;
  const uint64_t n_windows = state.windows.size();
  std::memcpy(at, &n_windows, kLengthBytes);
  at = std::ranges::copy(state.windows, at + kLengthBytes).out;
  std::ranges::copy(state.partial, at);
  return record;
}

void seal_state(StateRecord& record, const StoreIdentity& identity) {
  seal_record({.block = block_of(record.label),
               .payload_bytes = record.payload_bytes,
               .created_us = unix_microseconds(),
               .place = place_of(record.label.name.key)},
              identity, record.bytes);
}

Result<SessionState> open_state(std::span<const std::byte> bytes, const StateLabel& label,
                                const StoreIdentity& identity) {
  FATHOM_ASSIGN_OR_RETURN(const RecordHead head, open_record(bytes, identity));
  const TierBlock wanted = block_of(label);
  const TierBlock& found = head.block;
  const bool same = found.key == wanted.key && found.parent == wanted.parent &&
                    found.first_position == wanted.first_position &&
                    found.tenant_tag == wanted.tenant_tag && found.grade == wanted.grade;
  if (!same || head.place != place_of(wanted.key)) return invalid("state: of another name");
  std::span<const std::byte> payload = payload_of(head, bytes);
  uint64_t n_windows = 0;
  if (payload.size() < kLengthBytes) return invalid("state: no length");
  std::memcpy(&n_windows, payload.data(), kLengthBytes);
  payload = payload.subspan(kLengthBytes);
  if (n_windows > payload.size()) return invalid("state: windows end behind the record");
  SessionState state;
  const auto windows = payload.first(n_windows);
  const auto partial = payload.subspan(n_windows);
  state.windows.assign(windows.begin(), windows.end());
  state.partial.assign(partial.begin(), partial.end());
  return state;
}

}  // namespace fathom
