#include "text/bpe.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace fathom {
namespace {

// The ids that the model itself can produce: bytes and results of merges, and with ignore_merges
// every entry. Added tokens are found by their own matcher.
std::vector<bool> model_ids(const TokenizerFile& file) {
  std::vector<bool> is_model(file.token_bytes.size(), file.ignore_merges);
  if (file.ignore_merges) {
    for (const AddedToken& token : file.added) is_model[token.id] = false;
  }
  for (size_t id = 0; id < file.token_bytes.size(); ++id) {
    if (file.token_bytes[id].size() == 1) is_model[id] = true;
  }
  for (const Merge& merge : file.merges) is_model[merge.result] = true;
  return is_model;
}

uint64_t hash_pair(TokenId left, TokenId right) {
  const uint64_t key =
      (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  const uint64_t hash = key * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

bool is_later(const Bpe::Candidate& a, const Bpe::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

}  // namespace

Bpe::Bpe(const TokenizerFile& file)
    : vocabulary_(file.token_bytes, model_ids(file)),
      slots_(std::bit_ceil(2 * file.merges.size() + 2)),
      mask_(slots_.size() - 1),
      byte_pairs_(256 * 256),
      own_(std::make_unique<std::atomic<uint8_t>[]>(file.token_bytes.size())) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_id_[byte] = vocabulary_.find({&c, 1});
    FATHOM_CHECK(byte_id_[byte] != kNoToken);
  }
  for (size_t rank = 0; rank < file.merges.size(); ++rank) {
    insert(file.merges[rank], static_cast<uint32_t>(rank));
  }
  for (int pair = 0; pair < 256 * 256; ++pair) {
    byte_pairs_[pair] = find_pair(byte_id_[pair >> 8], byte_id_[pair & 0xFF]);
  }
  for (size_t id = 0; id < file.token_bytes.size(); ++id) {
    own_[id].store(file.ignore_merges ? kYes : kUnknown, std::memory_order_relaxed);
  }
}

void Bpe::insert(const Merge& merge, uint32_t rank) {
  uint64_t slot = hash_pair(merge.left, merge.right) & mask_;
  while (slots_[slot].left != kNoToken) slot = (slot + 1) & mask_;
  slots_[slot] = {merge.left, merge.right, {rank, merge.result}};
}

Bpe::Pair Bpe::find_pair(TokenId left, TokenId right) const {
  for (uint64_t slot = hash_pair(left, right) & mask_;; slot = (slot + 1) & mask_) {
    const MergeSlot& s = slots_[slot];
    if (s.left == left && s.right == right) return s.pair;
    if (s.left == kNoToken) return {};
  }
}

void Bpe::encode(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const {
  const TokenId id = vocabulary_.find(piece);
  if (id != kNoToken && is_own_token(id, piece, scratch)) {
    out->push_back(id);
    return;
  }
  merge_all(piece, scratch, out);
}

bool Bpe::is_own_token(TokenId id, std::string_view piece, Scratch* scratch) const {
  const uint8_t known = own_[id].load(std::memory_order_relaxed);
  if (known != kUnknown) return known == kYes;
  std::vector<TokenId> ids;
  merge_all(piece, scratch, &ids);
  const bool is_own = ids.size() == 1 && ids[0] == id;
  own_[id].store(is_own ? kYes : kNo, std::memory_order_relaxed);
  return is_own;
}

void Bpe::merge_all(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const {
  // Link indices are 32 bit. A piece of 2 GiB would take more memory than a text may ask for.
  FATHOM_CHECK(piece.size() < INT32_MAX);
  piece.size() <= kShortPiece ? merge_short(piece, scratch, out) : merge_long(piece, scratch, out);
}

void Bpe::merge_short(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const {
  std::vector<Part>& parts = scratch->parts;
  size_t n = piece.size();
  if (n == 0) return;
  parts.resize(n);
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(piece[i]); };
  for (size_t i = 0; i + 1 < n; ++i) {
    parts[i] = {byte_id_[byte(i)], byte_pairs_[byte(i) * 256 + byte(i + 1)]};
  }
  parts[n - 1] = {byte_id_[byte(n - 1)], {}};
  for (;;) {
    size_t best = 0;
    for (size_t i = 1; i < n; ++i) {
      if (parts[i].pair.rank < parts[best].pair.rank) best = i;
    }
    if (parts[best].pair.rank == kNoRank) break;
    parts[best].id = parts[best].pair.result;
    std::move(parts.begin() + best + 2, parts.begin() + n, parts.begin() + best + 1);
    --n;
    parts[best].pair = best + 1 < n ? find_pair(parts[best].id, parts[best + 1].id) : Pair{};
    if (best > 0) parts[best - 1].pair = find_pair(parts[best - 1].id, parts[best].id);
  }
  for (size_t i = 0; i < n; ++i) out->push_back(parts[i].id);
}

void Bpe::push_candidate(int32_t left, Scratch* scratch) const {
  const Link& link = scratch->links[left];
  if (link.next < 0) return;
  const TokenId right_id = scratch->links[link.next].id;
  const Pair pair = find_pair(link.id, right_id);
  if (pair.rank == kNoRank) return;
  scratch->heap.push_back({pair.rank, left, link.id, right_id, pair.result});
  std::ranges::push_heap(scratch->heap, is_later);
}

void Bpe::merge_long(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const {
  std::vector<Link>& links = scratch->links;
  const auto n = static_cast<int32_t>(piece.size());
  links.resize(piece.size());
  scratch->heap.clear();
  for (int32_t i = 0; i < n; ++i) {
    links[i] = {byte_id_[static_cast<uint8_t>(piece[i])], i - 1, i + 1 < n ? i + 1 : -1};
  }
  for (int32_t i = 0; i < n; ++i) push_candidate(i, scratch);
  while (!scratch->heap.empty()) {
    std::ranges::pop_heap(scratch->heap, is_later);
    const Candidate candidate = scratch->heap.back();
    scratch->heap.pop_back();
    Link& left = links[candidate.left];
    if (left.id != candidate.left_id || left.next < 0) continue;
    Link& right = links[left.next];
    if (right.id != candidate.right_id) continue;
    left.id = candidate.result;
    right.id = kNoToken;
    left.next = right.next;
    if (left.next >= 0) links[left.next].previous = candidate.left;
    push_candidate(candidate.left, scratch);
    if (left.previous >= 0) push_candidate(left.previous, scratch);
  }
  for (int32_t i = 0; i >= 0; i = links[i].next) out->push_back(links[i].id);
}

}  // namespace fathom
