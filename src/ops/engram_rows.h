#pragma once

// Row numbers of the hashed n-gram memory for one position, for host and device alike.
// spec/engram.md 5; spec/backbone.md 3.2 (b) to (d).

#include <cstdint>

namespace fathom {

// A canonical id that stands inside an image span or before the sequence: it blocks look-back.
inline constexpr int32_t kDeadId = -1;

// Constants of one table: columns are order-major, then head.
struct EngramColumns {
  const int64_t* primes = nullptr;       // [columns]
  const int64_t* offsets = nullptr;      // [columns] first row of a column
  const int64_t* multipliers = nullptr;  // [n_back]
  int64_t n_back = 0;                    // look-back, the position itself counted
  int64_t n_heads = 0;                   // columns of an order
  int32_t pad = 0;                       // canonical id of the padding token
};

// lookback [n_back]: canonical ids, the position's own first. Writes (n_back - 1) n_heads rows.
constexpr void engram_row_numbers(const EngramColumns& c, const int32_t* lookback, int64_t* rows) {
  bool blocked = false;
  uint64_t mixed = 0;
  for (int64_t s = 0; s < c.n_back; ++s) {
    // Sticky: beyond the first dead position everything is pad, even ordinary text.
    blocked = blocked || lookback[s] == kDeadId;
    const auto id = static_cast<uint64_t>(static_cast<int64_t>(blocked ? c.pad : lookback[s]));
    mixed ^= id * static_cast<uint64_t>(c.multipliers[s]);
    if (s == 0) continue;
    for (int64_t head = 0; head < c.n_heads; ++head) {
      const int64_t column = (s - 1) * c.n_heads + head;
      rows[column] =
          c.offsets[column] + static_cast<int64_t>(mixed % static_cast<uint64_t>(c.primes[column]));
    }
  }
}

}  // namespace fathom
