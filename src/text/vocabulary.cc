#include "text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace fathom {
namespace {

// A multiplicative hash, 8 bytes a step. The table is fixed after load, so texts cannot fill it
// with collisions.
constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * kMultiplier;
  return hash ^ (hash >> 32);
}

uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = bytes.size();
  const char* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word = 0;
    std::memcpy(&word, p, 8);
    hash = mix(hash, word);
  }
  if (left >= 4) {
    uint32_t low = 0;
    uint32_t high = 0;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + left - 4, 4);
    return mix(hash, low | (static_cast<uint64_t>(high) << 32));
  }
  uint64_t word = 0;
  for (size_t i = 0; i < left; ++i) word = (word << 8) | static_cast<uint8_t>(p[i]);
  return mix(hash, word);
}

}  // namespace

Vocabulary::Vocabulary(const std::vector<std::string>& token_bytes,
                       const std::vector<bool>& indexed) {
  FATHOM_CHECK(token_bytes.size() == indexed.size());
  offsets_.reserve(token_bytes.size() + 1);
  offsets_.push_back(0);
  for (const std::string& bytes : token_bytes) {
    blob_ += bytes;
    offsets_.push_back(static_cast<uint32_t>(blob_.size()));
  }
  FATHOM_CHECK(blob_.size() <= UINT32_MAX);
  slots_.resize(std::bit_ceil(2 * token_bytes.size() + 2));
  mask_ = slots_.size() - 1;
  for (size_t id = 0; id < token_bytes.size(); ++id) {
    const std::string& bytes = token_bytes[id];
    if (!indexed[id] || find(bytes) != kNoToken) continue;
    longest_ = std::max(longest_, bytes.size());
    const uint64_t hash = hash_bytes(bytes);
    uint64_t slot = hash & mask_;
    while (slots_[slot].id != kNoToken) slot = (slot + 1) & mask_;
    slots_[slot] = {static_cast<uint32_t>(hash >> 32), static_cast<TokenId>(id)};
  }
}

TokenId Vocabulary::find(std::string_view bytes) const {
  if (bytes.size() > longest_) return kNoToken;
  const uint64_t hash = hash_bytes(bytes);
  const auto check = static_cast<uint32_t>(hash >> 32);
  for (uint64_t slot = hash & mask_;; slot = (slot + 1) & mask_) {
    const Slot& s = slots_[slot];
    if (s.id == kNoToken) return kNoToken;
    if (s.hash == check && this->bytes(s.id) == bytes) return s.id;
  }
}

}  // namespace fathom
