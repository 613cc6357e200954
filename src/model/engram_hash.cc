#include "model/engram_hash.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/check.h"
#include "model/numpy_random.h"

namespace fathom {
namespace {

// Trial division: numbers stay below 2^32 (validate_config), so 2^15 odd divisors are enough.
bool is_prime(int64_t n) {
  if (n < 4) return n > 1;
  if (n % 2 == 0) return false;
  for (int64_t d = 3; d * d <= n; d += 2) {
    if (n % d == 0) return false;
  }
  return true;
}

// The next prime after candidate that no column has yet.
int64_t next_free_prime(int64_t candidate, const std::set<int64_t>& seen) {
  do {
    ++candidate;
  } while (seen.contains(candidate) || !is_prime(candidate));
  return candidate;
}

}  // namespace

std::vector<std::vector<int64_t>> engram_primes(const TextConfig& text) {
  std::set<int64_t> seen;
  std::vector<std::vector<int64_t>> layers;
  for (size_t layer = 0; layer < text.engram_layer_ids.size(); ++layer) {
    std::vector<int64_t> columns;
    for (int64_t order = 2; order <= text.engram_max_ngram_size; ++order) {
      int64_t candidate = text.engram_vocab_size - 1;
      for (int64_t head = 0; head < text.engram_n_heads; ++head) {
        candidate = next_free_prime(candidate, seen);
        seen.insert(candidate);
        columns.push_back(candidate);
      }
    }
    layers.push_back(std::move(columns));
  }
  return layers;
}

std::vector<int64_t> engram_multipliers(const TextConfig& text, int64_t layer) {
  const int64_t largest = std::numeric_limits<int64_t>::max();
  const int64_t bound = std::max<int64_t>(1, largest / text.engram_compressed_vocab_size / 2);
  NumpyRandom random(static_cast<uint64_t>(10007 * layer));
  std::vector<int64_t> multipliers;
  for (int64_t s = 0; s < text.engram_max_ngram_size; ++s) {
    multipliers.push_back(2 * static_cast<int64_t>(random.below(static_cast<uint64_t>(bound))) + 1);
  }
  return multipliers;
}

std::vector<EngramHash> make_engram_hashes(const TextConfig& text) {
  const std::vector<std::vector<int64_t>> primes = engram_primes(text);
  std::vector<EngramHash> hashes;
  for (size_t i = 0; i < primes.size(); ++i) {
    EngramHash hash;
    hash.layer = static_cast<int>(text.engram_layer_ids[i]);
    hash.n_heads = text.engram_n_heads;
    hash.primes = primes[i];
    hash.multipliers = engram_multipliers(text, text.engram_layer_ids[i]);
    for (const int64_t prime : hash.primes) {
      hash.offsets.push_back(hash.n_rows);
      hash.n_rows += prime;
    }
    hashes.push_back(std::move(hash));
  }
  return hashes;
}

void engram_rows(std::span<int64_t> rows, const EngramHash& hash, std::span<const int32_t> lookback,
                 int32_t pad) {
  FATHOM_CHECK(lookback.size() == hash.multipliers.size());
  FATHOM_CHECK(rows.size() == hash.primes.size());
  engram_row_numbers({.primes = hash.primes.data(),
                      .offsets = hash.offsets.data(),
                      .multipliers = hash.multipliers.data(),
                      .n_back = static_cast<int64_t>(lookback.size()),
                      .n_heads = hash.n_heads,
                      .pad = pad},
                     lookback.data(), rows.data());
}

}  // namespace fathom
