#pragma once

// Constants and row numbers of the n-gram memory, derived for any configuration.
// Source: spec/engram.md sections 3 to 5; spec/backbone.md 3.2 (b) to (d).

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "ops/engram_rows.h"

namespace fathom {

// Columns are order-major, then head: column (order - 2) * engram_n_heads + head. Every number is
// a full 64-bit integer; the released multipliers need 47 bits.
struct EngramHash {
  int layer = 0;
  int64_t n_heads = 0;
  std::vector<int64_t> primes;       // [columns]
  std::vector<int64_t> offsets;      // [columns] the first row of a column
  std::vector<int64_t> multipliers;  // [engram_max_ngram_size] m[s] belongs to look-back s
  int64_t n_rows = 0;                // the sum of the primes

  int64_t n_columns() const { return static_cast<int64_t>(primes.size()); }
};

// The primes of all layers, in order: [layer][column]. Distinct over all layers.
std::vector<std::vector<int64_t>> engram_primes(const TextConfig& text);

// The odd multipliers of one layer: NumPy's default_rng(10007 * layer) drawing
// engram_max_ngram_size integers below a bound that depends on the compressed vocabulary.
std::vector<int64_t> engram_multipliers(const TextConfig& text, int64_t layer);

// One for each of engram_layer_ids.
std::vector<EngramHash> make_engram_hashes(const TextConfig& text);

// Rows of one position. `lookback` [engram_max_ngram_size] holds canonical ids, the current token
// first; a position before the start of the sequence and one inside an image are kDeadId. pad is
// the canonical id of engram_pad_token_id. Writes n_columns row numbers.
void engram_rows(std::span<int64_t> rows, const EngramHash& hash, std::span<const int32_t> lookback,
                 int32_t pad);

}  // namespace fathom
