// Byte-pair encoding against a model of ten lines, on random small vocabularies.

#include "text/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace fathom {
namespace {

// Bytes and `n_merges` random merges over a few letters, so that ranks compete everywhere.
TokenizerFile random_file(std::mt19937& random, int n_merges) {
  TokenizerFile file;
  for (int byte = 0; byte < 256; ++byte) file.token_bytes.emplace_back(1, static_cast<char>(byte));
  std::vector<TokenId> pool{'a', 'b', 'c', 'd'};
  std::map<std::pair<TokenId, TokenId>, bool> seen;
  std::map<std::string, TokenId> id_of;
  while (static_cast<int>(file.merges.size()) < n_merges) {
    const TokenId left = pool[random() % pool.size()];
    const TokenId right = pool[random() % pool.size()];
    const std::string joined = file.token_bytes[left] + file.token_bytes[right];
    if (joined.size() > 12 || !seen.emplace(std::pair{left, right}, true).second) continue;
    // Two merges may give the same token.
    const auto [at, is_new] = id_of.emplace(joined, static_cast<TokenId>(file.token_bytes.size()));
    if (is_new) {
      file.token_bytes.push_back(joined);
      pool.push_back(at->second);
    }
    file.merges.push_back({left, right, at->second});
  }
  return file;
}

std::vector<TokenId> encode_by_definition(const TokenizerFile& file, const std::string& piece) {
  std::vector<TokenId> ids;
  for (const char c : piece) ids.push_back(static_cast<uint8_t>(c));
  for (;;) {
    size_t best_rank = file.merges.size();
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (file.merges[rank].left != ids[i] || file.merges[rank].right != ids[i + 1]) continue;
        best_rank = rank;
        best_at = i;
      }
    }
    if (best_rank == file.merges.size()) return ids;
    ids[best_at] = file.merges[best_rank].result;
    ids.erase(ids.begin() + best_at + 1);
  }
}

TEST(Bpe, EqualsItsDefinitionOnRandomVocabularies) {
  const auto seed = std::random_device()();
  std::mt19937 random(seed);
  for (int round = 0; round < 30; ++round) {
    const TokenizerFile file = random_file(random, 1 + static_cast<int>(random() % 60));
    const Bpe bpe(file);
    Bpe::Scratch scratch;
    for (int text = 0; text < 40; ++text) {
      // On both sides of the length where the heap takes over, and short ones.
      const size_t n = text % 4 == 0 ? 90 + random() % 120 : random() % 14;
      std::string piece;
      for (size_t i = 0; i < n; ++i) piece += static_cast<char>('a' + random() % 5);
      std::vector<TokenId> ids;
      bpe.encode(piece, &scratch, &ids);
      ASSERT_EQ(ids, encode_by_definition(file, piece)) << "seed " << seed << " " << piece;
    }
    // Entries themselves, twice: the second time what was found out is remembered.
    for (int again = 0; again < 2; ++again) {
      for (const std::string& piece : file.token_bytes) {
        std::vector<TokenId> ids;
        bpe.encode(piece, &scratch, &ids);
        ASSERT_EQ(ids, encode_by_definition(file, piece)) << "seed " << seed << " " << piece;
      }
    }
  }
}

TEST(Bpe, ALongRunOfOneByteTakesNoQuadraticTime) {
  std::mt19937 random(1);
  TokenizerFile file = random_file(random, 0);
  TokenId id = 'a';
  for (int i = 0; i < 6; ++i) {
    const auto doubled = static_cast<TokenId>(file.token_bytes.size());
    file.token_bytes.push_back(file.token_bytes[id] + file.token_bytes[id]);
    file.merges.push_back({id, id, doubled});
    id = doubled;
  }
  const Bpe bpe(file);
  Bpe::Scratch scratch;
  std::vector<TokenId> ids;
  bpe.encode(std::string(2'000'000, 'a'), &scratch, &ids);  // minutes if it were quadratic
  EXPECT_EQ(ids, std::vector<TokenId>(2'000'000 / 64, id));
}

TEST(Bpe, IgnoreMergesTakesWholeEntries) {
  TokenizerFile file;
  for (int byte = 0; byte < 256; ++byte) file.token_bytes.emplace_back(1, static_cast<char>(byte));
  file.token_bytes.push_back("abc");
  Bpe::Scratch scratch;
  for (const bool ignore : {false, true}) {
    file.ignore_merges = ignore;
    std::vector<TokenId> ids;
    Bpe(file).encode("abc", &scratch, &ids);
    EXPECT_EQ(ids, ignore ? std::vector<TokenId>{256} : (std::vector<TokenId>{'a', 'b', 'c'}));
  }
}

}  // namespace
}  // namespace fathom
