// A sequence as bytes, and back. Layout, little-endian: SavedHeader, token ids (i32), image flags
// (u8, where there are some), blocks, session slot, boundary rows, SHA-256 of everything before.

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/hash.h"
#include "engine/runner.h"

namespace fathom {
namespace {

static_assert(std::endian::native == std::endian::little, "saved bytes are little-endian");

constexpr char kMagic[8] = {'F', 'A', 'T', 'H', 'S', 'E', 'Q', '2'};
constexpr int64_t kTokensMax = int64_t{1} << 40;  // keeps every size below inside 64 bits

struct SavedHeader {
  char magic[8] = {};
  Sha256Digest spec = {};
  int64_t n_tokens = 0;
  int64_t has_image = 0;
  int64_t tail_bytes = 0;
  SequencePositions at;
};
static_assert(sizeof(SavedHeader) == 8 + 32 + 10 * 8, "no padding: the bytes are hashed");
static_assert(sizeof(SequencePositions) == 7 * 8, "another layout wants another magic");

// Fills bytes from the front.
class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::byte* next(int64_t n) {
    FATHOM_CHECK(n <= static_cast<int64_t>(bytes_.size()));
    std::byte* here = bytes_.data();
    bytes_ = bytes_.subspan(static_cast<size_t>(n));
    return here;
  }
  void put(const void* data, int64_t n) {
    std::byte* here = next(n);
    if (n > 0) std::memcpy(here, data, static_cast<size_t>(n));
  }

 private:
  std::span<std::byte> bytes_;
};

// Takes bytes from the front.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  const std::byte* next(int64_t n) {
    FATHOM_CHECK(n <= static_cast<int64_t>(bytes_.size()));
    const std::byte* here = bytes_.data();
    bytes_ = bytes_.subspan(static_cast<size_t>(n));
    return here;
  }
  void take(void* out, int64_t n) {
    const std::byte* here = next(n);
    if (n > 0) std::memcpy(out, here, static_cast<size_t>(n));
  }

 private:
  std::span<const std::byte> bytes_;
};

// Everything before the SHA-256; `state_bytes` are those of blocks and slot.
size_t content_bytes(const SavedHeader& h, int64_t state_bytes) {
  return sizeof(h) +
         static_cast<size_t>(h.n_tokens * (4 + h.has_image) + state_bytes + h.tail_bytes);
}

// What every sequence keeps (engine/sequence.h).
bool possible(const SavedHeader& h) {
  return 0 <= h.n_tokens && h.n_tokens <= kTokensMax && are_possible(h.at, h.n_tokens) &&
         (h.has_image == 0 || h.has_image == 1);
}

void blank(std::byte* data, int64_t row, int64_t row_bytes) {
  if (row_bytes > 0) std::memset(data + row * row_bytes, 0, static_cast<size_t>(row_bytes));
}

void blank_row(std::byte* base, const KvStream& stream, int64_t row) {
  blank(base + stream.payload_offset, row, stream.payload_bytes);
  blank(base + stream.scale_offset, row, stream.scale_bytes);
}

// Rows of a ring that hold none of the positions [low, end).
void blank_ring(std::byte* base, const KvStream& stream, int64_t low, int64_t end) {
  std::vector<bool> live(static_cast<size_t>(stream.rows));
  for (int64_t p = std::max(low, end - stream.rows); p < end; ++p) {
    live[static_cast<size_t>(p % stream.rows)] = true;
  }
  for (int64_t row = 0; row < stream.rows; ++row) {
    if (!live[static_cast<size_t>(row)]) blank_row(base, stream, row);
  }
}

}  // namespace

// Released pool memory is not cleared: rows that the sequence never wrote may be another's.
void Runner::blank_dead_rows(const Sequence& sequence, std::span<std::byte> state) const {
  const int64_t n_blocks = blocks_for(sequence.entries_end);
  std::byte* slot = state.data() + n_blocks * blocks_.block_bytes();
  for (const KvStream& stream : spec_.streams()) {
    if (stream.lifetime() == KvLifetime::kPrefix) {
      if (n_blocks == 0) continue;
      std::byte* last = state.data() + (n_blocks - 1) * blocks_.block_bytes();
      const int64_t written = sequence.entries_end / stream.ratio - (n_blocks - 1) * stream.rows;
      for (int64_t row = written; row < stream.rows; ++row) blank_row(last, stream, row);
    } else if (stream.role == KvRole::kWindow) {
      const bool encoder = stream.layer < model_.plan().n_encoder_layers;
      blank_ring(slot, stream, encoder ? sequence.encoder_low : sequence.decoder_low,
                 encoder ? sequence.length : sequence.decoder_length);
    } else {
      const int64_t pending = sequence.length % stream.ratio;
      for (int64_t row = 2 * pending; row < stream.rows; ++row) blank_row(slot, stream, row);
    }
  }
}

Result<std::vector<std::byte>> Runner::save(const Sequence& sequence) const {
  SavedHeader header = {.spec = spec_.id(),
                        .n_tokens = static_cast<int64_t>(sequence.tokens.size()),
                        .has_image = sequence.image.empty() ? 0 : 1,
                        .tail_bytes = sequence.tail.bytes(),
                        .at = sequence.positions()};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  const int64_t state_bytes = blocks_for(sequence.entries_end) * blocks_.block_bytes();
  std::vector<std::byte> out(content_bytes(header, state_bytes + windows_.slot_bytes()) +
                             sizeof(Sha256Digest));
  const std::span content = std::span(out).first(out.size() - sizeof(Sha256Digest));
  ByteWriter writer(out);
  DeviceMemory& memory = ops_.memory();
  writer.put(&header, sizeof(header));
  writer.put(sequence.tokens.data(), header.n_tokens * 4);
  writer.put(sequence.image.data(), header.n_tokens * header.has_image);
  for (int64_t i = 0; i < blocks_for(sequence.entries_end); ++i) {
    const auto id = static_cast<int64_t>(sequence.blocks[static_cast<size_t>(i)]);
    memory.read(writer.next(blocks_.block_bytes()), blocks_.base() + id * blocks_.block_bytes(),
                blocks_.block_bytes());
  }
  const auto slot = static_cast<int64_t>(sequence.slot);
  memory.read(writer.next(windows_.slot_bytes()), windows_.base() + slot * windows_.slot_bytes(),
              windows_.slot_bytes());
  const auto state_begin =
      sizeof(header) + static_cast<size_t>(header.n_tokens * (4 + header.has_image));
  blank_dead_rows(sequence, content.subspan(state_begin));
  memory.read(writer.next(sequence.tail.bytes()), sequence.tail.data(), sequence.tail.bytes());
  FATHOM_RETURN_IF_ERROR(memory.sync());
  const Sha256Digest digest = sha256(content);
  writer.put(digest.data(), static_cast<int64_t>(digest.size()));
  return out;
}

Result<Sequence> Runner::restore(std::span<const std::byte> bytes, const std::string& where) {
  constexpr size_t kLeast = sizeof(SavedHeader) + sizeof(Sha256Digest);
  if (bytes.size() < kLeast) {
    return invalid(where + ": saved sequence: wanted at least " + std::to_string(kLeast) +
                   " bytes, found " + std::to_string(bytes.size()));
  }
  SavedHeader header;
  ByteReader reader(bytes);
  reader.take(&header, sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return invalid(where + ": saved sequence: wanted a file that begins FATHSEQ2, found another");
  }
  Sha256Digest digest;
  const std::span<const std::byte> content = bytes.first(bytes.size() - sizeof(digest));
  std::memcpy(digest.data(), bytes.data() + content.size(), sizeof(digest));
  const Sha256Digest found = sha256(content);
  if (found != digest) {
    return invalid(where + ": SHA-256 of the content: wanted " + to_hex(digest) + ", found " +
                   to_hex(found));
  }
  if (header.spec != spec_.id()) {
    return invalid(where + ": layout of the cache: wanted " + to_hex(spec_.id()) + ", found " +
                   to_hex(header.spec));
  }
  if (!possible(header)) return invalid(where + ": positions: wanted those of a sequence");
  FATHOM_ASSIGN_OR_RETURN(Sequence sequence, open());
  const Result<void> filled = fill(sequence, content, where);
  if (filled) return sequence;
  close(sequence);
  return filled.error();
}

// `content` begins with a header that restore() has looked at.
Result<void> Runner::fill(Sequence& sequence, std::span<const std::byte> content,
                          const std::string& where) {
  SavedHeader h;
  ByteReader reader(content);
  reader.take(&h, sizeof(h));
  if (h.tail_bytes != sequence.tail.bytes()) {
    return invalid(where + ": boundary rows: wanted " + std::to_string(sequence.tail.bytes()) +
                   " bytes in this schedule, found " + std::to_string(h.tail_bytes));
  }
  const int64_t state_bytes =
      blocks_for(h.at.entries_end) * blocks_.block_bytes() + windows_.slot_bytes();
  const size_t wanted = content_bytes(h, state_bytes);
  if (content.size() != wanted) {
    return invalid(where + ": saved sequence: wanted " + std::to_string(wanted) +
                   " bytes before the SHA-256, found " + std::to_string(content.size()));
  }
  std::vector<int32_t> tokens(static_cast<size_t>(h.n_tokens));
  std::vector<uint8_t> image(static_cast<size_t>(h.n_tokens * h.has_image));
  reader.take(tokens.data(), h.n_tokens * 4);
  reader.take(image.data(), static_cast<int64_t>(image.size()));
  FATHOM_RETURN_IF_ERROR(append(sequence, tokens, image));
  reserve(sequence, h.at.entries_end);
  DeviceMemory& memory = ops_.memory();
  for (const BlockId id : sequence.blocks) {
    const int64_t at = static_cast<int64_t>(id) * blocks_.block_bytes();
    memory.write(blocks_.base() + at, reader.next(blocks_.block_bytes()), blocks_.block_bytes());
  }
  const int64_t at = static_cast<int64_t>(sequence.slot) * windows_.slot_bytes();
  memory.write(windows_.base() + at, reader.next(windows_.slot_bytes()), windows_.slot_bytes());
  memory.write(sequence.tail.data(), reader.next(h.tail_bytes), h.tail_bytes);
  FATHOM_RETURN_IF_ERROR(memory.sync());
  sequence.positions() = h.at;
  return {};
}

}  // namespace fathom
