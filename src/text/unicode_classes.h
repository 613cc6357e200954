#pragma once

// The Unicode 16 classes of the pre-tokeniser patterns: \p{L} \p{M} \p{N} \p{P} \p{S} and \s. The
// regular-expression and Unicode libraries at hand know older or newer versions, and a character
// that is in another class is split differently (spec/tokenizer.md section 2).

#include <span>

namespace fathom {

struct CodePointRange {
  char32_t first = 0;
  char32_t last = 0;  // inclusive

  bool operator==(const CodePointRange&) const = default;
};

enum class UnicodeClass { kLetter, kMark, kNumber, kPunctuation, kSymbol, kSpace };

// Ascending, disjoint, without surrogates.
std::span<const CodePointRange> unicode_class_ranges(UnicodeClass unicode_class);

bool unicode_class_contains(UnicodeClass unicode_class, char32_t code_point);

}  // namespace fathom
