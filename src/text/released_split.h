#pragma once

// The three splits of the released tokenizer (spec/tokenizer.md section 2) as one hand-written
// pass. It is chosen only when a file's patterns are exactly these, and gives the pieces that
// RegexSplit gives; released_split_test.cc compares the two.
//
// Thread rule: const after construction.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fathom {

class ReleasedSplit {
 public:
  static const std::vector<std::string>& patterns();

  ReleasedSplit();

  // As RegexSplit::split.
  void split(std::string_view text, size_t base, std::vector<size_t>* ends) const;

 private:
  class Scanner;

  uint8_t flags(char32_t code_point) const {
    return blocks_[block_of_[code_point >> 8] * 256 + (code_point & 0xFF)];
  }

  std::vector<uint16_t> block_of_;  // [0x1100], by the upper bits of a code point
  std::vector<uint8_t> blocks_;     // distinct blocks of 256 class flags
};

}  // namespace fathom
