#pragma once

// The format of a segment: a page that says whose it is, then records, each at a multiple of
// kPageBytes: 256 bytes of header, payload, zeros. Fixed for ever under its version; whatever
// changes a byte of it takes the next one. Numbers are of the machine's byte order, which the
// format names. A sealed store has a format of its own: the payload of its records is sealed with a
// key (base/seal.h) together with all of the header but the place, so that a record is moved
// without the key. docs/design/store.md has the reasons.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/result.h"
#include "base/seal.h"
#include "cache/tier.h"

namespace fathom {

inline constexpr uint32_t kStoreFormat = 1;        // payloads in clear
inline constexpr uint32_t kSealedStoreFormat = 2;  // sealed payloads
inline constexpr int64_t kRecordHeadBytes = 256;
inline constexpr int64_t kBlockBytesMax = int64_t{1} << 28;

// How a store is sealed; all of it stands in its card (cache/store/seal.h).
struct StoreSeal {
  Sha256Digest salt = {};       // the key of its payloads is derived with it
  Sha256Digest key_check = {};  // tells whether a key is the store's, and nothing about it
  bool operator==(const StoreSeal&) const = default;
};

// Whose state a store keeps. Bytes of two identities never meet in one folder.
struct StoreIdentity {
  Sha256Digest weights = {};      // fingerprint of the checkpoint
  Sha256Digest spec = {};         // of the KvSpec
  int64_t block_bytes = 0;        // the most that a payload has
  std::optional<StoreSeal> seal;  // none: payloads are in clear
  bool operator==(const StoreIdentity&) const = default;
};

// A record's place: its segment's number, and its first page in it.
struct RecordPlace {
  uint32_t segment = 0;
  uint32_t page = 0;
  auto operator<=>(const RecordPlace&) const = default;
};

struct RecordHead {
  TierBlock block;
  int64_t payload_bytes = 0;
  int64_t created_us = 0;  // of the Unix clock, when the payload was first written
  RecordPlace place;
};

// Pages of a record, in bytes.
int64_t record_bytes(int64_t payload_bytes);

uint32_t store_format(const StoreIdentity& identity);

// Completes a record whose payload lies behind the room of the header: seals the payload where the
// identity's is (with `sealer`, which is null where it is not), fills the header and clears what
// follows the payload. `record` has record_bytes(head.payload_bytes).
void seal_record(const RecordHead& head, const StoreIdentity& identity, std::span<std::byte> record,
                 const Sealer* sealer = nullptr);

// Gives a complete record another place, and changes nothing else of what it says.
void place_record(const RecordPlace& place, std::span<std::byte> record);

// What a record says, once its checksums were verified, that of a sealed payload as it stands:
// header, identity, payload. `bytes` begins with the record and may go on. kInvalid, with the check
// that failed; kExhausted where the header is sound and `bytes` ends before the record does.
Result<RecordHead> open_record(std::span<const std::byte> bytes, const StoreIdentity& identity);

// Unseals, in place, the payload of a sealed record whose checksums were verified. False: payload
// or header are not what was sealed with this key.
[[nodiscard]] bool unseal_record(const Sealer& sealer, std::span<std::byte> record);

// Whether two heads say the same of a block, wherever its records lie.
bool same_block(const RecordHead& a, const RecordHead& b);

// The payload of a record that was verified.
std::span<const std::byte> payload_of(const RecordHead& head, std::span<const std::byte> record);

// The first page of segment `number`.
void seal_segment(uint32_t number, const StoreIdentity& identity, std::span<std::byte> page);

// kNotFound where the page is no such page or is damaged; kInvalid where it is sound and another
// identity's, format's or byte order's.
Result<void> check_segment(uint32_t number, const StoreIdentity& identity,
                           std::span<const std::byte> page);

// Of 64 hexadecimal digits, lower case; kInvalid for other texts.
Result<Sha256Digest> parse_digest(std::string_view text);

std::string segment_name(uint32_t number);
// The number in the name of a segment; -1 for other names.
int64_t segment_number(const std::string& name);

// The text of store.fathom, and whether another one says the same; kInvalid, with the first line
// that differs.
std::string store_card(const StoreIdentity& identity);
Result<void> check_card(const std::string& card, const StoreIdentity& identity);
// Whose store such a text is; kInvalid, with the line that is none of this format.
Result<StoreIdentity> parse_card(const std::string& card);

}  // namespace fathom
