#include "text/unicode_classes.h"

#include <algorithm>

#include "base/check.h"

namespace fathom {
namespace {

#include "text/unicode_classes.inc"

}  // namespace

std::span<const CodePointRange> unicode_class_ranges(UnicodeClass unicode_class) {
  switch (unicode_class) {
    case UnicodeClass::kLetter:
      return kLetterRanges;
    case UnicodeClass::kMark:
      return kMarkRanges;
    case UnicodeClass::kNumber:
      return kNumberRanges;
    case UnicodeClass::kPunctuation:
      return kPunctuationRanges;
    case UnicodeClass::kSymbol:
      return kSymbolRanges;
    case UnicodeClass::kSpace:
      return kSpaceRanges;
  }
  FATHOM_CHECK(false);
  return {};
}

bool unicode_class_contains(UnicodeClass unicode_class, char32_t code_point) {
  const auto ranges = unicode_class_ranges(unicode_class);
  const auto after = std::ranges::upper_bound(ranges, code_point, {}, &CodePointRange::first);
  return after != ranges.begin() && code_point <= (after - 1)->last;
}

}  // namespace fathom
