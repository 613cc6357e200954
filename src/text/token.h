#pragma once

// The two small values that the text floor and everything above it share.

#include <cstddef>
#include <cstdint>

namespace fathom {

using TokenId = int32_t;

inline constexpr TokenId kNoToken = -1;

// Bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;

  bool operator==(const ByteRange&) const = default;
};

}  // namespace fathom
