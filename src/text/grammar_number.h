#pragma once

// Numbers between bounds as grammars: the decimal texts of JSON.

#include <cstdint>
#include <optional>
#include <string>

#include "text/grammar_builder.h"

namespace fathom {

inline constexpr int kIntegerDigits = 18;  // of an integer without bounds

// Integers from `low` to `high`; without a bound, of at most kIntegerDigits digits.
GrammarBuilder::Expr add_integers(GrammarBuilder& builder, std::optional<int64_t> low,
                                  std::optional<int64_t> high);

// A bound of numbers, as decimal digits.
struct DecimalBound {
  bool negative = false;
  int64_t whole = 0;     // at most kDecimalWholeMax
  std::string fraction;  // digits, the last one not 0, at most kDecimalPlaces
  bool exclusive = false;
};

// So few digits that two numbers which differ in them differ as doubles.
inline constexpr int64_t kDecimalWholeMax = 999'999'999;
inline constexpr size_t kDecimalPlaces = 6;

// Numbers without exponent between bounds, of at most 9 digits before the point and
// kDecimalPlaces behind it.
GrammarBuilder::Expr add_decimals(GrammarBuilder& builder, const std::optional<DecimalBound>& low,
                                  const std::optional<DecimalBound>& high);

// Any number: up to kIntegerDigits digits before and behind the point, an exponent of two.
GrammarBuilder::Expr add_numbers(GrammarBuilder& builder);

}  // namespace fathom
