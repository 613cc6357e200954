#pragma once

// Token bytes by id, and ids by bytes.
//
// Thread rule: const after construction.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/token.h"

namespace fathom {

class Vocabulary {
 public:
  // `token_bytes` by id. `indexed` says which ids `find` may return; of two indexed ids with equal
  // bytes the smaller wins.
  Vocabulary(const std::vector<std::string>& token_bytes, const std::vector<bool>& indexed);

  int32_t size() const { return static_cast<int32_t>(offsets_.size()) - 1; }
  std::string_view bytes(TokenId id) const {
    return std::string_view(blob_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }

  // The indexed id with these bytes, or kNoToken.
  TokenId find(std::string_view bytes) const;

 private:
  struct Slot {
    uint32_t hash = 0;  // upper half of the hash, to compare before the bytes
    TokenId id = kNoToken;
  };

  std::string blob_;
  std::vector<uint32_t> offsets_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  uint64_t mask_ = 0;
  size_t longest_ = 0;  // bytes of the longest indexed token
};

}  // namespace fathom
