// Strings and numbers.
#include "text/grammar_schema_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/grammar_format.h"
#include "text/grammar_number.h"
#include "text/grammar_regex.h"
#include "text/grammar_schema_keywords.h"
#include "text/quote.h"
#include "text/tool_schema.h"

namespace fathom {
namespace {

// A bound rounded inwards; absent where no 64-bit integer passes it.
std::optional<int64_t> whole_bound(const Json& value, bool lower, bool exclusive) {
  if (const int64_t* is = value.as_int64()) {
    if (!exclusive) return *is;
    if (lower) return *is == INT64_MAX ? std::nullopt : std::optional(*is + 1);
    return *is == INT64_MIN ? std::nullopt : std::optional(*is - 1);
  }
  const double x = *number_of(value);
  constexpr double kBeyond = 9.2e18;
  if (!(std::abs(x) < kBeyond)) return std::nullopt;
  const double inside = lower ? std::ceil(x) : std::floor(x);
  const int64_t step = exclusive && inside == x ? 1 : 0;
  return static_cast<int64_t>(inside) + (lower ? step : -step);
}

std::optional<DecimalBound> decimal_bound(const Json& value) {
  const double x = *number_of(value);
  char text[400];
  const auto end = std::to_chars(text, text + sizeof(text), std::abs(x), std::chars_format::fixed);
  const std::string_view digits(text, static_cast<size_t>(end.ptr - text));
  const std::string_view whole = digits.substr(0, digits.find('.'));
  DecimalBound bound = {.negative = x < 0};
  if (whole.size() < digits.size()) bound.fraction = digits.substr(whole.size() + 1);
  std::from_chars(whole.data(), whole.data() + whole.size(), bound.whole);
  const bool fits = whole.size() <= 9 && bound.fraction.size() <= kDecimalPlaces;
  return fits ? std::optional(bound) : std::nullopt;
}

}  // namespace

using Expr = GrammarBuilder::Expr;

// One rule for all texts, so that they share what was found out about the vocabulary.
Expr SchemaReader::any_text() {
  return json_.shared("text", [&] { return builder_.without(kTextEnd, {}); });
}

// A text that is counted or has a pattern holds no kTextEndMark at all.
Result<Expr> SchemaReader::string(const Json& schema, const std::string& path, SchemaPart part) {
  const bool text = part == SchemaPart::kText;
  const CharacterSet mark({{kTextEndMark, kTextEndMark}});
  const Json* pattern = schema.find("pattern");
  const Json* format = schema.find("format");
  FATHOM_ASSIGN_OR_RETURN(const int64_t low, count(schema, "minLength", 0, path));
  FATHOM_ASSIGN_OR_RETURN(const int64_t high, count(schema, "maxLength", -1, path));
  if (pattern == nullptr && format == nullptr) {
    if (high >= 0 && low > high) return builder_.nothing();
    if (!text) return json_.string(low, high);
    if (low == 0 && high < 0) return any_text();
    return builder_.repeat(builder_.characters(mark.complement()), low, high);
  }
  const std::string first = pattern != nullptr ? "pattern" : "format";
  for (const char* other : {"minLength", "maxLength", "format"}) {
    if (other == first || schema.find(other) == nullptr) continue;
    return refused(path + "." + other, "no " + first + " beside it", "one");
  }
  const std::string place = path + "." + first;
  std::string_view expression;
  if (pattern != nullptr) {
    expression = *pattern->as_string();
  } else {
    expression = format_pattern(*format->as_string());
    if (expression.empty()) {
      return refused(place, "a format that can be enforced", quote(*format->as_string()));
    }
  }
  const RegexOptions options = {
      .search = pattern != nullptr, .spell = [&](GrammarBuilder&, const CharacterSet& set) {
        return text ? builder_.characters(set.without(mark)) : json_.character(set);
      }};
  FATHOM_ASSIGN_OR_RETURN(const Expr content, add_regex(builder_, expression, options, place));
  return text ? content : json_.quoted(content);
}

Result<Expr> SchemaReader::integer(const Json& schema, const std::string& path) {
  std::optional<int64_t> low;
  std::optional<int64_t> high;
  for (const std::string keyword : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    const Json* value = schema.find(keyword);
    if (value == nullptr) continue;
    const bool lower = keyword.ends_with("inimum");
    const auto bound = whole_bound(*value, lower, keyword.starts_with("exclusive"));
    if (!bound) return refused(path + "." + keyword, "a 64-bit integer", json_text(*value));
    if (lower) low = std::max(low.value_or(INT64_MIN), *bound);
    if (!lower) high = std::min(high.value_or(INT64_MAX), *bound);
  }
  return add_integers(builder_, low, high);
}

Result<Expr> SchemaReader::number(const Json& schema, const std::string& path) {
  std::optional<DecimalBound> bounds[2];
  for (const std::string keyword : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    const Json* value = schema.find(keyword);
    if (value == nullptr) continue;
    const std::string place = path + "." + keyword;
    std::optional<DecimalBound>& bound = bounds[keyword.ends_with("inimum") ? 0 : 1];
    if (bound) return refused(place, "no second bound on the same side", "one");
    bound = decimal_bound(*value);
    if (!bound) {
      return refused(place, "a number below 10^9 of at most 6 decimals", json_text(*value));
    }
    bound->exclusive = keyword.starts_with("exclusive");
  }
  if (!bounds[0] && !bounds[1]) return add_numbers(builder_);
  return add_decimals(builder_, bounds[0], bounds[1]);
}

}  // namespace fathom
