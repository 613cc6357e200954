#include "text/grammar_number.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr uint64_t kLargestFree = 999'999'999'999'999'999;  // of kIntegerDigits digits

Expr digit_range(GrammarBuilder& b, char low, char high) {
  return b.byte_range(static_cast<uint8_t>(low), static_cast<uint8_t>(high));
}
Expr digits(GrammarBuilder& b, int64_t at_least, int64_t at_most) {
  return b.repeat(digit_range(b, '0', '9'), at_least, at_most);
}
bool all(std::string_view text, char digit) {
  return std::ranges::all_of(text, [digit](char c) { return c == digit; });
}

// Digit strings of one length, in order.
Expr same_length(GrammarBuilder& b, std::string_view low, std::string_view high) {
  const size_t n = low.size();
  if (n == 0) return b.empty();
  const auto rest = static_cast<int64_t>(n) - 1;
  if (low[0] == high[0]) {
    return b.sequence({b.bytes(low.substr(0, 1)), same_length(b, low.substr(1), high.substr(1))});
  }
  std::vector<Expr> parts;
  char first = low[0];
  char last = high[0];
  if (!all(low.substr(1), '0')) {
    const std::string nines(n - 1, '9');
    parts.push_back(b.sequence({b.bytes(low.substr(0, 1)), same_length(b, low.substr(1), nines)}));
    ++first;
  }
  if (!all(high.substr(1), '9')) {
    const std::string zeros(n - 1, '0');
    parts.push_back(
        b.sequence({b.bytes(high.substr(0, 1)), same_length(b, zeros, high.substr(1))}));
    --last;
  }
  if (first <= last) {
    parts.push_back(b.sequence({digit_range(b, first, last), digits(b, rest, rest)}));
  }
  return b.choice(std::move(parts));
}

// Without sign and leading zeros.
Expr magnitudes(GrammarBuilder& b, uint64_t low, uint64_t high) {
  if (low > high) return b.nothing();
  const std::string first = std::to_string(low);
  const std::string last = std::to_string(high);
  std::vector<Expr> parts;
  for (size_t n = first.size(); n <= last.size(); ++n) {
    const std::string from = n == first.size() ? first : "1" + std::string(n - 1, '0');
    const std::string to = n == last.size() ? last : std::string(n, '9');
    parts.push_back(same_length(b, from, to));
  }
  return b.choice(std::move(parts));
}

uint64_t magnitude(int64_t value) {
  return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
}

// Fractions without the point, after digits that were equal so far. `low` and `high` are the digits
// that are left of a bound; a fraction goes on with zeros where its digits end.
Expr at_least_fraction(GrammarBuilder& b, std::string_view low, bool exclusive) {
  const Expr any = digits(b, 0, kDecimalPlaces);
  if (low.empty() && !exclusive) return any;
  if (low.empty()) {
    const Expr zeros = b.repeat(b.bytes("0"), 0, kDecimalPlaces - 1);
    return b.sequence({zeros, digit_range(b, '1', '9'), any});
  }
  std::vector<Expr> parts = {
      b.sequence({b.bytes(low.substr(0, 1)), at_least_fraction(b, low.substr(1), exclusive)})};
  if (low[0] < '9') {
    parts.push_back(b.sequence({digit_range(b, static_cast<char>(low[0] + 1), '9'), any}));
  }
  return b.choice(std::move(parts));
}

Expr at_most_fraction(GrammarBuilder& b, std::string_view high, bool exclusive) {
  if (high.empty()) {
    return exclusive ? b.nothing() : b.repeat(b.bytes("0"), 0, kDecimalPlaces);
  }
  std::vector<Expr> parts = {
      b.empty(),
      b.sequence({b.bytes(high.substr(0, 1)), at_most_fraction(b, high.substr(1), exclusive)})};
  if (high[0] > '0') {
    parts.push_back(b.sequence(
        {digit_range(b, '0', static_cast<char>(high[0] - 1)), digits(b, 0, kDecimalPlaces)}));
  }
  return b.choice(std::move(parts));
}

Expr between_fractions(GrammarBuilder& b, std::string_view low, std::string_view high,
                       bool low_exclusive, bool high_exclusive) {
  if (low.empty() && high.empty()) {
    return low_exclusive || high_exclusive ? b.nothing()
                                           : b.repeat(b.bytes("0"), 0, kDecimalPlaces);
  }
  const char first = low.empty() ? '0' : low[0];
  const char last = high.empty() ? '0' : high[0];
  const std::string_view low_rest = low.substr(low.empty() ? 0 : 1);
  const std::string_view high_rest = high.substr(high.empty() ? 0 : 1);
  if (first > last) return b.nothing();
  std::vector<Expr> parts;
  if (low.empty() && !low_exclusive) parts.push_back(b.empty());  // zeros: high is above them
  if (first == last) {
    parts.push_back(
        b.sequence({digit_range(b, first, first),
                    between_fractions(b, low_rest, high_rest, low_exclusive, high_exclusive)}));
    return b.choice(std::move(parts));
  }
  parts.push_back(
      b.sequence({digit_range(b, first, first), at_least_fraction(b, low_rest, low_exclusive)}));
  parts.push_back(
      b.sequence({digit_range(b, last, last), at_most_fraction(b, high_rest, high_exclusive)}));
  if (first + 1 < last) {
    parts.push_back(
        b.sequence({digit_range(b, static_cast<char>(first + 1), static_cast<char>(last - 1)),
                    digits(b, 0, kDecimalPlaces)}));
  }
  return b.choice(std::move(parts));
}

// A digit at least where there is a point: an empty fraction is the number without one.
Expr with_point(GrammarBuilder& b, Expr whole, Expr fraction, bool whole_alone) {
  const Expr pointed = b.sequence({whole, b.bytes("."), fraction});
  return whole_alone ? b.choice({whole, pointed}) : pointed;
}

// Behind a point stands a digit at least, so the first one is spelled out.
class DecimalRange {
 public:
  DecimalRange(GrammarBuilder& builder, const DecimalBound& low, const DecimalBound& high)
      : b_(builder), low_(low), high_(high) {}

  // Magnitudes from low to high, whose signs are not looked at.
  Expr magnitudes_between() {
    std::vector<Expr> parts;
    if (low_.whole == high_.whole) {
      const bool alone = (low_.fraction.empty() && !low_.exclusive) &&
                         (!high_.fraction.empty() || !high_.exclusive);
      return with_point(b_, whole(low_.whole, low_.whole), pointed_between(), alone);
    }
    if (low_.whole > high_.whole) return b_.nothing();
    parts.push_back(with_point(b_, whole(low_.whole, low_.whole), pointed_at_least(),
                               low_.fraction.empty() && !low_.exclusive));
    if (low_.whole + 1 < high_.whole) {
      parts.push_back(with_point(b_, whole(low_.whole + 1, high_.whole - 1),
                                 digits(b_, 1, kDecimalPlaces), true));
    }
    parts.push_back(with_point(b_, whole(high_.whole, high_.whole), pointed_at_most(),
                               !high_.fraction.empty() || !high_.exclusive));
    return b_.choice(std::move(parts));
  }

 private:
  Expr whole(int64_t low, int64_t high) {
    return magnitudes(b_, static_cast<uint64_t>(low), static_cast<uint64_t>(high));
  }

  // Each first digit, with what may follow it.
  template <typename Rest>
  Expr by_first_digit(const Rest& rest) {
    std::vector<Expr> parts;
    for (char digit = '0'; digit <= '9'; ++digit) {
      parts.push_back(b_.sequence({digit_range(b_, digit, digit), rest(digit)}));
    }
    return b_.choice(std::move(parts));
  }
  static char first(const std::string& fraction) { return fraction.empty() ? '0' : fraction[0]; }
  static std::string_view rest(const std::string& fraction) {
    return std::string_view(fraction).substr(fraction.empty() ? 0 : 1);
  }
  Expr free() { return digits(b_, 0, kDecimalPlaces - 1); }

  Expr pointed_at_least() {
    return by_first_digit([&](char digit) {
      if (digit != first(low_.fraction)) {
        return digit > first(low_.fraction) ? free() : b_.nothing();
      }
      return at_least_fraction(b_, rest(low_.fraction), low_.exclusive);
    });
  }
  Expr pointed_at_most() {
    return by_first_digit([&](char digit) {
      if (digit != first(high_.fraction)) {
        return digit < first(high_.fraction) ? free() : b_.nothing();
      }
      return at_most_fraction(b_, rest(high_.fraction), high_.exclusive);
    });
  }
  Expr pointed_between() {
    const char low = first(low_.fraction);
    const char high = first(high_.fraction);
    return by_first_digit([&](char digit) {
      if (digit < low || digit > high) return b_.nothing();
      if (digit > low && digit < high) return free();
      if (low == high) {
        return between_fractions(b_, rest(low_.fraction), rest(high_.fraction), low_.exclusive,
                                 high_.exclusive);
      }
      return digit == low ? at_least_fraction(b_, rest(low_.fraction), low_.exclusive)
                          : at_most_fraction(b_, rest(high_.fraction), high_.exclusive);
    });
  }

  GrammarBuilder& b_;
  DecimalBound low_;
  DecimalBound high_;
};

}  // namespace

GrammarBuilder::Expr add_integers(GrammarBuilder& b, std::optional<int64_t> low,
                                  std::optional<int64_t> high) {
  constexpr auto kFree = static_cast<int64_t>(kLargestFree);
  if (!low) low = high && *high < -kFree ? INT64_MIN : -kFree;
  if (!high) high = *low > kFree ? INT64_MAX : kFree;
  if (*low > *high) return b.nothing();
  std::vector<Expr> parts;
  if (*high >= 0) {
    parts.push_back(magnitudes(b, magnitude(std::max<int64_t>(*low, 0)), magnitude(*high)));
  }
  if (*low < 0) {
    const uint64_t least = *high >= 0 ? 1 : magnitude(*high);
    parts.push_back(b.sequence({b.bytes("-"), magnitudes(b, least, magnitude(*low))}));
  }
  return b.choice(std::move(parts));
}

GrammarBuilder::Expr add_decimals(GrammarBuilder& b, const std::optional<DecimalBound>& low,
                                  const std::optional<DecimalBound>& high) {
  const DecimalBound zero;
  const DecimalBound most = {.whole = kDecimalWholeMax};
  std::vector<Expr> parts;
  if (!high || !high->negative) {
    const DecimalBound from = low && !low->negative ? *low : zero;
    parts.push_back(DecimalRange(b, from, high.value_or(most)).magnitudes_between());
  }
  if (!low || low->negative) {
    DecimalBound from = zero;
    from.exclusive = true;  // -0 is left out
    if (high && high->negative) from = *high;
    const Expr range = DecimalRange(b, from, low.value_or(most)).magnitudes_between();
    parts.push_back(b.sequence({b.bytes("-"), range}));
  }
  return b.choice(std::move(parts));
}

GrammarBuilder::Expr add_numbers(GrammarBuilder& b) {
  const Expr whole = b.choice(
      {b.bytes("0"), b.sequence({digit_range(b, '1', '9'), digits(b, 0, kIntegerDigits - 1)})});
  const Expr fraction = b.sequence({b.bytes("."), digits(b, 1, kIntegerDigits)});
  const Expr sign = b.choice({b.bytes("+"), b.bytes("-"), b.empty()});
  const Expr exponent = b.sequence({b.choice({b.bytes("e"), b.bytes("E")}), sign, digits(b, 1, 2)});
  return b.sequence({b.optional(b.bytes("-")), whole, b.optional(fraction), b.optional(exponent)});
}

}  // namespace fathom
