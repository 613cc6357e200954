#include "cache/block_key.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/kv_spec.h"

namespace fathom {
namespace {

// Feeds values with their lengths in front, so that no two lists of parts read alike.
class Framed {
 public:
  explicit Framed(const char* purpose) { text(purpose); }

  void number(int64_t value) {
    const auto bits = static_cast<uint64_t>(value);
    std::array<std::byte, 8> bytes;
    for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(bits >> (8 * i) & 0xFFU);
    hash_.update(bytes);
  }
  void bytes(std::span<const std::byte> value) {
    number(static_cast<int64_t>(value.size()));
    hash_.update(value);
  }
  void text(const std::string& value) { bytes(std::as_bytes(std::span(value))); }
  void digest(const Sha256Digest& value) { bytes(std::as_bytes(std::span(value))); }
  void ids(std::span<const int32_t> value) {
    number(static_cast<int64_t>(value.size()));
    std::vector<std::byte> bytes;
    bytes.reserve(value.size() * 4);
    for (const int32_t id : value) {
      const auto bits = static_cast<uint32_t>(id);
      for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::byte>(bits >> (8 * i) & 0xFFU));
    }
    hash_.update(bytes);
  }
  BlockKey finish() { return {hash_.finish()}; }

 private:
  Sha256 hash_;
};

struct KeyParts {
  const BlockKey& parent;
  StateGrade grade;
  std::span<const int32_t> ids;
  int64_t first_position;
  std::span<const ImageSpan> images;
};

BlockKey chained(const char* purpose, const KeyParts& parts) {
  Framed hash(purpose);
  hash.digest(parts.parent.digest);
  hash.number(static_cast<int64_t>(parts.grade));
  hash.ids(parts.ids);
  for (const ImageSpan& image : parts.images) {
    if (image.begin >= parts.first_position + static_cast<int64_t>(parts.ids.size())) continue;
    if (image.begin + image.n_tokens <= parts.first_position) continue;
    hash.number(image.begin - parts.first_position);
    hash.number(image.n_tokens);
    hash.digest(image.digest);
  }
  return hash.finish();
}

}  // namespace

BlockKey root_key(const KeyRoot& root) {
  Framed hash("fathom prefix root 1");
  hash.digest(root.weights);
  hash.digest(root.spec);
  hash.text(root.encoder_version);
  hash.text(root.tenant_salt);
  return hash.finish();
}

uint64_t tenant_tag(const BlockKey& root) {
  uint64_t tag = 0;
  for (size_t i = 0; i < 8; ++i) tag |= static_cast<uint64_t>(root.digest[i]) << (8 * i);
  return tag;
}

BlockKey next_key(const BlockKey& parent, StateGrade grade, std::span<const int32_t> ids,
                  int64_t first_position, std::span<const ImageSpan> images) {
  FATHOM_CHECK(ids.size() == static_cast<size_t>(kBlockTokens));
  return chained("fathom prefix block 1", {parent, grade, ids, first_position, images});
}

BlockKey state_key(const BlockKey& parent, StateGrade grade, std::span<const int32_t> ids,
                   int64_t first_position, std::span<const ImageSpan> images) {
  FATHOM_CHECK(ids.size() < static_cast<size_t>(kBlockTokens));
  return chained("fathom session state 1", {parent, grade, ids, first_position, images});
}

void KeyChain::extend(std::span<const int32_t> tokens, std::span<const ImageSpan> images) {
  const auto n_full = static_cast<int64_t>(tokens.size()) / kBlockTokens;
  while (n_blocks() < n_full) {
    const int64_t begin = n_blocks() * kBlockTokens;
    const StateGrade grade = n_blocks() == branch_at_ ? StateGrade::kBounded : StateGrade::kExact;
    const BlockKey& parent = keys_.empty() ? root_ : keys_.back();
    const auto ids = tokens.subspan(static_cast<size_t>(begin), kBlockTokens);
    keys_.push_back(next_key(parent, grade, ids, begin, images));
  }
}

void KeyChain::branch(int64_t n_blocks) {
  FATHOM_CHECK(branch_at_ < 0 && 0 <= n_blocks && n_blocks <= this->n_blocks());
  keys_.resize(static_cast<size_t>(n_blocks));
  branch_at_ = n_blocks;
}

}  // namespace fathom
