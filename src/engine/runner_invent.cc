// Sequences with random state, for measurements at a context that nobody wants to wait for.

#include <algorithm>
#include <cstring>

#include "engine/runner.h"

namespace fathom {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  void bytes(uint8_t* to, int64_t n, uint64_t mask) {
    for (int64_t i = 0; i < n; i += 8) {
      const uint64_t word = next() & mask;
      std::memcpy(to + i, &word, static_cast<size_t>(std::min<int64_t>(8, n - i)));
    }
  }
  // Codes low .. low + 7.
  void scales(uint8_t* to, int64_t n, uint8_t low) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint8_t>(low + next() % 8);
  }

 private:
  uint64_t state_;
};

constexpr uint64_t kAllBits = ~uint64_t{0};
constexpr uint64_t kSmallE4m3 = 0xbfbfbfbfbfbfbfbfull;  // below 2, and no NaN
constexpr uint8_t kE4m3Scale = 0x28;                    // 2^-2 and up
constexpr uint8_t kE8m0Scale = 118;                     // 2^-9 to 2^-2

// Every record of a stream in a block or slot.
void fill_stream(const KvStream& s, Random& random, uint8_t* piece) {
  uint8_t* payload = piece + s.payload_offset;
  uint8_t* scale = piece + s.scale_offset;
  if (s.role == KvRole::kRemainder) {
    for (int64_t i = 0; i < s.rows * s.payload_bytes / 4; ++i) {
      const float value = static_cast<float>(random.next() >> 40) * 0x1p-24f - 0.5f;
      std::memcpy(payload + 4 * i, &value, sizeof value);
    }
    return;
  }
  random.bytes(payload, s.rows * s.payload_bytes,
               s.role == KvRole::kWindow ? kSmallE4m3 : kAllBits);
  random.scales(scale, s.rows * s.scale_bytes, s.role == KvRole::kMain ? kE4m3Scale : kE8m0Scale);
}

}  // namespace

Result<Sequence> Runner::invent(int64_t length, uint64_t seed) {
  FATHOM_CHECK(0 < length && length < options_.context);
  FATHOM_ASSIGN_OR_RETURN(Sequence sequence, open());
  const auto vocab = static_cast<uint64_t>(model_.config().text_config.vocab_size);
  Random random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i <= length; ++i) {
    tokens.push_back(static_cast<int32_t>(random.next() % vocab));
  }
  FATHOM_RETURN_IF_ERROR(append(sequence, tokens));
  reserve(sequence, length);
  DeviceMemory& memory = ops_.memory();
  const auto fill = [&](KvLifetime lifetime, uint8_t* to, int64_t bytes) {
    std::vector<uint8_t> piece(static_cast<size_t>(bytes));
    for (const KvStream& stream : spec_.streams()) {
      if (stream.lifetime() == lifetime) fill_stream(stream, random, piece.data());
    }
    memory.write(to, piece.data(), bytes);
  };
  for (const BlockId id : sequence.blocks) {
    fill(KvLifetime::kPrefix, blocks_.base() + static_cast<int64_t>(id) * blocks_.block_bytes(),
         blocks_.block_bytes());
  }
  fill(KvLifetime::kSession,
       windows_.base() + static_cast<int64_t>(sequence.slot) * windows_.slot_bytes(),
       windows_.slot_bytes());
  sequence.length = sequence.entries_end = sequence.decoder_length = length;
  sequence.tail_low = length;
  return sequence;
}

}  // namespace fathom
