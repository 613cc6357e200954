#include "cache/store/record.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <sstream>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "cache/store/disk.h"

namespace fathom {
namespace {

constexpr uint64_t kRecordMagic = 0x3152564b4d485446;   // "FTHMKVR1"
constexpr uint64_t kSegmentMagic = 0x314745534d485446;  // "FTHMSEG1"
constexpr uint32_t kByteOrder = 0x01020304;

struct Header {
  uint64_t magic = kRecordMagic;
  uint32_t format = kStoreFormat;
  uint32_t byte_order = kByteOrder;
  uint32_t head_bytes = kRecordHeadBytes;
  uint32_t payload_bytes = 0;
  Sha256Digest key = {};
  Sha256Digest parent = {};
  Sha256Digest spec = {};
  Sha256Digest weights = {};
  uint64_t tenant_tag = 0;
  int64_t first_position = 0;
  int64_t created_us = 0;
  double cost = 0;
  uint32_t segment = 0;
  uint32_t page = 0;
  uint32_t grade = 0;
  uint32_t seal_id = 0;
  uint64_t payload_low = 0;  // XXH3-128 of the payload as it stands
  uint64_t payload_high = 0;
  std::array<uint8_t, 16> nonce = {};  // random; zeros where the payload is in clear, as the tag
  SealTag tag = {};
  uint64_t checksum = 0;  // XXH3-64 of all before it
};
static_assert(sizeof(Header) == kRecordHeadBytes && std::is_trivially_copyable_v<Header>);

struct SegmentHeader {
  uint64_t magic = kSegmentMagic;
  uint32_t format = kStoreFormat;
  uint32_t byte_order = kByteOrder;
  uint32_t number = 0;
  uint32_t seal_id = 0;
  int64_t block_bytes = 0;
  Sha256Digest spec = {};
  Sha256Digest weights = {};
  uint64_t checksum = 0;
};
static_assert(sizeof(SegmentHeader) == 104 && std::is_trivially_copyable_v<SegmentHeader>);

template <typename T>
uint64_t checksum_of(const T& header) {
  return ::XXH3_64bits(&header, offsetof(T, checksum));
}

template <typename T>
T read_header(std::span<const std::byte> bytes) {
  T header;
  std::memcpy(&header, bytes.data(), sizeof(T));
  return header;
}

// Tells segments and records of one sealed store from those of another; 0: in clear.
uint32_t seal_id(const StoreIdentity& identity) {
  uint32_t id = 0;
  if (identity.seal) std::memcpy(&id, identity.seal->salt.data(), sizeof(id));
  return id;
}

// What is sealed beside the payload: the header without its place, which may change, and without
// what is known behind the sealing only.
Header sealed_beside(Header header) {
  header.segment = 0;
  header.page = 0;
  header.payload_low = 0;
  header.payload_high = 0;
  header.tag = {};
  header.checksum = 0;
  return header;
}

// Random bits, and behind them the time: a generator that begins again where it was, as that of a
// machine restored from a snapshot, repeats no nonce either.
SealNonce nonce_of(const Header& header) {
  SealNonce nonce = {};
  static_assert(sizeof(header.nonce) + sizeof(header.created_us) == sizeof(nonce));
  std::memcpy(nonce.data(), header.nonce.data(), sizeof(header.nonce));
  std::memcpy(nonce.data() + sizeof(header.nonce), &header.created_us, sizeof(header.created_us));
  return nonce;
}

std::span<std::byte> payload_in(const Header& header, std::span<std::byte> record) {
  return record.subspan(kRecordHeadBytes, header.payload_bytes);
}

void seal_payload(const Sealer& sealer, Header& header, std::span<std::byte> record) {
  const auto random = secret_bytes();
  std::copy_n(random.begin(), header.nonce.size(), header.nonce.begin());
  const Header beside = sealed_beside(header);
  header.tag = sealer.seal(nonce_of(header), std::as_bytes(std::span(&beside, 1)),
                           payload_in(header, record));
}

Error differs(const std::string& what, const std::string& wanted, const std::string& found) {
  return invalid(what + ": wanted " + wanted + ", found " + found);
}

std::string hex(const Sha256Digest& digest) { return to_hex(digest); }

constexpr size_t kSameLines = 3;  // of a card, for all stores of a format
constexpr size_t kCardLines = 9;  // at most

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; lines.size() <= kCardLines && std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

Result<Sha256Digest> digest_behind(const std::string& name, const std::string& line) {
  auto digest = parse_digest(std::string_view(line).substr(std::min(name.size(), line.size())));
  if (digest && line.starts_with(name)) return digest;
  return invalid("wanted '" + name + "' and 64 digits, found '" + line + "'");
}

// The kinds of a foreign store; both of them carry the same first fields.
template <typename T>
Result<void> check_kind(const T& header, const StoreIdentity& identity) {
  if (header.byte_order != kByteOrder) {
    return invalid("byte order: wanted this machine's, found another");
  }
  if (header.format != store_format(identity)) {
    return differs("format", std::to_string(store_format(identity)), std::to_string(header.format));
  }
  if (header.spec != identity.spec) return differs("spec", hex(identity.spec), hex(header.spec));
  if (header.weights != identity.weights) {
    return differs("weights", hex(identity.weights), hex(header.weights));
  }
  if (header.seal_id != seal_id(identity))
    return invalid("seal: wanted this store's, found another");
  return {};
}

RecordHead head_of(const Header& header) {
  RecordHead head;
  head.block.key.digest = header.key;
  head.block.parent.digest = header.parent;
  head.block.first_position = header.first_position;
  head.block.tenant_tag = header.tenant_tag;
  head.block.grade = static_cast<StateGrade>(header.grade);
  head.block.cost = header.cost;
  head.payload_bytes = header.payload_bytes;
  head.created_us = header.created_us;
  head.place = {header.segment, header.page};
  return head;
}

}  // namespace

int64_t record_bytes(int64_t payload_bytes) {
  return (kRecordHeadBytes + payload_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

uint32_t store_format(const StoreIdentity& identity) {
  return identity.seal ? kSealedStoreFormat : kStoreFormat;
}

void seal_record(const RecordHead& head, const StoreIdentity& identity, std::span<std::byte> record,
                 const Sealer* sealer) {
  FATHOM_CHECK(static_cast<int64_t>(record.size()) == record_bytes(head.payload_bytes));
  FATHOM_CHECK(identity.seal.has_value() == (sealer != nullptr));
  const auto payload_end = static_cast<size_t>(kRecordHeadBytes + head.payload_bytes);
  Header header;
  header.format = store_format(identity);
  header.payload_bytes = static_cast<uint32_t>(head.payload_bytes);
  header.key = head.block.key.digest;
  header.parent = head.block.parent.digest;
  header.spec = identity.spec;
  header.weights = identity.weights;
  header.tenant_tag = head.block.tenant_tag;
  header.first_position = head.block.first_position;
  header.created_us = head.created_us;
  header.cost = head.block.cost;
  header.segment = head.place.segment;
  header.page = head.place.page;
  header.grade = static_cast<uint32_t>(head.block.grade);
  header.seal_id = seal_id(identity);
  if (sealer != nullptr) seal_payload(*sealer, header, record);
  const auto digest = ::XXH3_128bits(record.data() + kRecordHeadBytes, header.payload_bytes);
  header.payload_low = digest.low64;
  header.payload_high = digest.high64;
  header.checksum = checksum_of(header);
  std::memcpy(record.data(), &header, sizeof(header));
  std::memset(record.data() + payload_end, 0, record.size() - payload_end);
}

void place_record(const RecordPlace& place, std::span<std::byte> record) {
  auto header = read_header<Header>(record);
  FATHOM_CHECK(static_cast<int64_t>(record.size()) == record_bytes(header.payload_bytes));
  header.segment = place.segment;
  header.page = place.page;
  header.checksum = checksum_of(header);
  std::memcpy(record.data(), &header, sizeof(header));
  const auto padding = record.subspan(kRecordHeadBytes + size_t{header.payload_bytes});
  std::ranges::fill(padding, std::byte{0});
}

Result<RecordHead> open_record(std::span<const std::byte> bytes, const StoreIdentity& identity) {
  if (bytes.size() < sizeof(Header)) return exhausted("record: ends inside its header");
  const auto header = read_header<Header>(bytes);
  if (header.magic != kRecordMagic) return invalid("record: no magic number");
  if (header.checksum != checksum_of(header)) return invalid("record: header checksum differs");
  FATHOM_RETURN_IF_ERROR(check_kind(header, identity));
  if (header.head_bytes != kRecordHeadBytes || header.payload_bytes > identity.block_bytes) {
    return differs("record", "at most " + std::to_string(identity.block_bytes) + " payload bytes",
                   std::to_string(header.payload_bytes));
  }
  if (header.grade > static_cast<uint32_t>(StateGrade::kBounded))
    return invalid("record: no grade");
  if (static_cast<int64_t>(bytes.size()) < record_bytes(header.payload_bytes)) {
    return exhausted("record: ends inside its payload");
  }
  const auto digest = ::XXH3_128bits(bytes.data() + kRecordHeadBytes, header.payload_bytes);
  if (digest.low64 != header.payload_low || digest.high64 != header.payload_high) {
    return invalid("record: payload checksum differs");
  }
  return head_of(header);
}

bool unseal_record(const Sealer& sealer, std::span<std::byte> record) {
  const auto header = read_header<Header>(record);
  const Header beside = sealed_beside(header);
  return sealer.open(nonce_of(header), std::as_bytes(std::span(&beside, 1)),
                     payload_in(header, record), header.tag);
}

bool same_block(const RecordHead& a, const RecordHead& b) {
  return a.block.key == b.block.key && a.block.parent == b.block.parent &&
         a.block.first_position == b.block.first_position &&
         a.block.tenant_tag == b.block.tenant_tag && a.block.grade == b.block.grade &&
         a.block.cost == b.block.cost && a.payload_bytes == b.payload_bytes &&
         a.created_us == b.created_us;
}

std::span<const std::byte> payload_of(const RecordHead& head, std::span<const std::byte> record) {
  return record.subspan(kRecordHeadBytes, static_cast<size_t>(head.payload_bytes));
}

void seal_segment(uint32_t number, const StoreIdentity& identity, std::span<std::byte> page) {
  FATHOM_CHECK(static_cast<int64_t>(page.size()) == kPageBytes);
  SegmentHeader header;
  header.format = store_format(identity);
  header.number = number;
  header.seal_id = seal_id(identity);
  header.block_bytes = identity.block_bytes;
  header.spec = identity.spec;
  header.weights = identity.weights;
  header.checksum = checksum_of(header);
  std::fill(page.begin(), page.end(), std::byte{0});
  std::memcpy(page.data(), &header, sizeof(header));
}

Result<void> check_segment(uint32_t number, const StoreIdentity& identity,
                           std::span<const std::byte> page) {
  if (page.size() < sizeof(SegmentHeader)) return not_found("ends inside its header");
  const auto header = read_header<SegmentHeader>(page);
  // A sound page of the other byte order has the magic number turned round.
  if (header.magic == __builtin_bswap64(kSegmentMagic)) {
    return invalid("byte order: wanted this machine's, found another");
  }
  if (header.magic != kSegmentMagic || header.checksum != checksum_of(header)) {
    return not_found("no sound header");
  }
  FATHOM_RETURN_IF_ERROR(check_kind(header, identity));
  if (header.block_bytes != identity.block_bytes) {
    return differs("block bytes", std::to_string(identity.block_bytes),
                   std::to_string(header.block_bytes));
  }
  if (header.number != number) {
    return differs("number", std::to_string(number), std::to_string(header.number));
  }
  return {};
}

Result<Sha256Digest> parse_digest(std::string_view text) {
  Sha256Digest digest = {};
  const bool whole = text.size() == 2 * digest.size();
  for (size_t i = 0; whole && i < digest.size(); ++i) {
    const char* begin = text.data() + 2 * i;
    std::from_chars(begin, begin + 2, digest.at(i), 16);
  }
  if (whole && to_hex(digest) == text) return digest;
  return invalid("wanted 64 hexadecimal digits, found '" + std::string(text) + "'");
}

std::string segment_name(uint32_t number) {
  constexpr size_t kDigits = 8;
  std::array<char, kDigits> digits = {};
  const auto end = std::to_chars(digits.data(), digits.data() + kDigits, number, 16).ptr;
  const std::string text(digits.data(), end);
  return "seg-" + std::string(kDigits - text.size(), '0') + text;
}

int64_t segment_number(const std::string& name) {
  uint32_t number = 0;
  if (name.size() != 12 || !name.starts_with("seg-")) return -1;
  const auto parsed = std::from_chars(name.data() + 4, name.data() + name.size(), number, 16);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == name.data() + name.size();
  return whole && segment_name(number) == name ? static_cast<int64_t>(number) : -1;
}

std::string store_card(const StoreIdentity& identity) {
  const bool little = std::endian::native == std::endian::little;
  std::string card = "fathom prefix store\nformat " + std::to_string(store_format(identity)) +
                     "\nbyte order " + (little ? "little" : "big") + "\nweights " +
                     hex(identity.weights) + "\nspec " + hex(identity.spec) + "\nblock bytes " +
                     std::to_string(identity.block_bytes) + "\n";
  if (!identity.seal) return card;
  return card + "cipher XAES-256-GCM\nsalt " + hex(identity.seal->salt) + "\nkey check " +
         hex(identity.seal->key_check) + "\n";
}

Result<void> check_card(const std::string& card, const StoreIdentity& identity) {
  std::istringstream wanted_lines(store_card(identity));
  std::istringstream found_lines(card);
  std::string wanted;
  std::string found;
  while (std::getline(wanted_lines, wanted)) {
    if (!std::getline(found_lines, found)) return invalid("wanted '" + wanted + "', found no more");
    if (found != wanted) return invalid("wanted '" + wanted + "', found '" + found + "'");
  }
  if (std::getline(found_lines, found)) return invalid("wanted no more, found '" + found + "'");
  return {};
}

Result<StoreIdentity> parse_card(const std::string& card) {
  std::vector<std::string> found = lines_of(card);
  found.resize(kCardLines + 1);
  StoreIdentity identity;
  if (found[1] == "format " + std::to_string(kSealedStoreFormat)) identity.seal.emplace();
  const std::vector<std::string> wanted = lines_of(store_card(identity));
  for (size_t i = 0; i < kSameLines; ++i) {
    if (found[i] != wanted[i]) return differs("card", "'" + wanted[i] + "'", "'" + found[i] + "'");
  }
  FATHOM_ASSIGN_OR_RETURN(identity.weights, digest_behind("weights ", found[3]));
  FATHOM_ASSIGN_OR_RETURN(identity.spec, digest_behind("spec ", found[4]));
  const std::string& bytes = found[5];
  const size_t number = bytes.rfind(' ') + 1;
  std::from_chars(bytes.data() + number, bytes.data() + bytes.size(), identity.block_bytes);
  const bool bounded = 1 <= identity.block_bytes && identity.block_bytes <= kBlockBytesMax;
  if (!bounded) return differs("card", "'block bytes ' from 1 to 2^28", "'" + bytes + "'");
  if (identity.seal) {
    FATHOM_ASSIGN_OR_RETURN(identity.seal->salt, digest_behind("salt ", found[7]));
    FATHOM_ASSIGN_OR_RETURN(identity.seal->key_check, digest_behind("key check ", found[8]));
  }
  FATHOM_RETURN_IF_ERROR(check_card(card, identity));
  return identity;
}

}  // namespace fathom
