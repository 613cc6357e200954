#pragma once

// BlockKey: the name of one block of prefix-lifetime state. A SHA-256 chain: a key is a function of
// everything that decides the block's bytes, and of nothing else, so that two processes agree.
//
//   root   = H(weights, spec, encoder version, tenant salt)
//   key    = H(parent key, grade, 64 token ids, images of the block)
//   state  = H(parent key, grade, 0 to 63 token ids, images of them), under another purpose
//
// Every part is framed by its length. State that was computed after a bounded replay is named under
// a branch that carries the grade of its first block: an exact chain never contains such a key.
// Source: docs/design.md section 5.

#include <compare>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"

namespace fathom {

struct BlockKey {
  Sha256Digest digest = {};
  auto operator<=>(const BlockKey&) const = default;
};

struct BlockKeyHash {
  size_t operator()(const BlockKey& key) const {
    size_t value = 0;
    std::memcpy(&value, key.digest.data(), sizeof(value));
    return value;
  }
};

// How the windows were rebuilt that a block's rows were computed with.
enum class StateGrade : uint8_t { kExact, kBounded };

struct KeyRoot {
  Sha256Digest weights = {};    // fingerprint of the checkpoint
  Sha256Digest spec = {};       // of the KvSpec
  std::string encoder_version;  // what else decides the bytes of a block beside its ids
  std::string tenant_salt;      // derived by the server, never chosen by a caller
};

// Tokens [begin, begin + n_tokens) stand for an image; all images look alike as ids.
struct ImageSpan {
  int64_t begin = 0;
  int64_t n_tokens = 0;
  Sha256Digest digest = {};
};

BlockKey root_key(const KeyRoot& root);

// The same for all blocks of a tenant under one root: the digest's first 8 bytes, little endian.
uint64_t tenant_tag(const BlockKey& root);

// The key of the kBlockTokens `ids` at positions [first_position, ...); of `images` (absolute
// positions, any order of those of other blocks) those that overlap the block count.
// `grade` is kBounded for the first block of a bounded branch alone.
BlockKey next_key(const BlockKey& parent, StateGrade grade, std::span<const int32_t> ids,
                  int64_t first_position, std::span<const ImageSpan> images);

// The key of the state at a position inside a block or at its edge: of the full blocks before it by
// their last key `parent` (the root where there is none), and of the `ids` behind them, fewer than
// kBlockTokens, at positions [first_position, ...). `grade` is that of the state.
BlockKey state_key(const BlockKey& parent, StateGrade grade, std::span<const int32_t> ids,
                   int64_t first_position, std::span<const ImageSpan> images);

// The keys of one sequence's full blocks, grown as its tokens grow.
class KeyChain {
 public:
  explicit KeyChain(const BlockKey& root) : root_(root) {}

  // `tokens` is the whole sequence so far; what was seen before has not changed.
  void extend(std::span<const int32_t> tokens, std::span<const ImageSpan> images);

  // Keeps the first n_blocks keys; those that follow name bounded state from there on.
  void branch(int64_t n_blocks);

  // The same where the chain has no branch yet; nothing where it has one.
  void branch_once(int64_t n_blocks) {
    if (branch_at_ < 0) branch(n_blocks);
  }
  // Whether some of the first n_blocks keys name bounded state.
  bool is_branched_below(int64_t n_blocks) const {
    return 0 <= branch_at_ && branch_at_ < n_blocks;
  }

  // Forgets branch and keys.
  void reset() { *this = KeyChain(root_); }

  // Of block i.
  StateGrade grade(int64_t i) const {
    return is_branched_below(i + 1) ? StateGrade::kBounded : StateGrade::kExact;
  }

  std::span<const BlockKey> keys() const { return keys_; }
  int64_t n_blocks() const { return static_cast<int64_t>(keys_.size()); }

 private:
  BlockKey root_;
  std::vector<BlockKey> keys_;
  int64_t branch_at_ = -1;
};

}  // namespace fathom
