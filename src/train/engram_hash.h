#pragma once

// Engram addressing for any configuration (spec/engram.md 3 to 5): bucket primes, multipliers and
// the rows of every position. Pure integer arithmetic, 64 bits end to end.

#include <cstdint>
#include <vector>

#include "train/config.h"

namespace fathom::train {

struct EngramTable {
  std::vector<int64_t> primes;       // one per column, order-major then head
  std::vector<int64_t> offsets;      // first row of each column
  std::vector<int64_t> multipliers;  // one per look-back, current token first; odd
  int64_t rows = 0;                  // sum of the primes
};

// One table per entry of engram_layer_ids.
std::vector<EngramTable> engram_tables(const Config& config);

// `count` integers drawn uniformly from [0, bound) by NumPy's default_rng(seed).integers.
std::vector<uint64_t> numpy_integers(uint64_t seed, uint64_t bound, int count);

}  // namespace fathom::train
