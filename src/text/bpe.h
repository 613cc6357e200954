#pragma once

// Byte-pair encoding of one piece: start from its bytes, merge the adjacent pair with the smallest
// rank, the leftmost of equal ones, until no pair has a merge. Source: spec/tokenizer.md section 1.
//
// Cost: a piece that is one token by itself, which most are, is one table look-up; others cost
// O(n^2) cheap steps up to kShortPiece bytes and O(n log n) above.
//
// Thread rule: encode() may run in several threads, each with its own Scratch.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/tokenizer_file.h"
#include "text/vocabulary.h"

namespace fathom {

class Bpe {
 public:
  struct Pair {
    uint32_t rank = kNoRank;
    TokenId result = kNoToken;
  };
  struct Part {
    TokenId id = kNoToken;
    Pair pair;  // this part with the next one
  };
  struct Link {
    TokenId id = kNoToken;
    int32_t previous = -1;
    int32_t next = -1;
  };
  struct Candidate {
    uint32_t rank = kNoRank;
    int32_t left = 0;
    TokenId left_id = kNoToken;  // with right_id: to recognise a candidate that is out of date
    TokenId right_id = kNoToken;
    TokenId result = kNoToken;
  };
  // Buffers that encode() reuses.
  struct Scratch {
    std::vector<Part> parts;
    std::vector<Link> links;
    std::vector<Candidate> heap;
  };

  explicit Bpe(const TokenizerFile& file);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // Appends the ids of `piece` to *out.
  void encode(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  static constexpr size_t kShortPiece = 96;

  struct MergeSlot {
    TokenId left = kNoToken;
    TokenId right = kNoToken;
    Pair pair;
  };

  void insert(const Merge& merge, uint32_t rank);
  Pair find_pair(TokenId left, TokenId right) const;
  bool is_own_token(TokenId id, std::string_view piece, Scratch* scratch) const;
  void merge_all(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const;
  void merge_short(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const;
  void merge_long(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const;
  void push_candidate(int32_t left, Scratch* scratch) const;

  // Whether the bytes of a vocabulary entry encode to that one entry: found out at its first use.
  enum Own : uint8_t { kUnknown, kYes, kNo };

  Vocabulary vocabulary_;
  TokenId byte_id_[256];
  std::vector<MergeSlot> slots_;  // open addressing, a power of two, at most half full
  uint64_t mask_ = 0;
  std::vector<Pair> byte_pairs_;  // [256 * 256], by first and second byte
  std::unique_ptr<std::atomic<uint8_t>[]> own_;
};

}  // namespace fathom
