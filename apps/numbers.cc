#include "apps/numbers.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>

#include "text/quote.h"

namespace fathom {
namespace {

// The whole of `text` as one number. No sign but "-", no leading zeros (which other programs read
// as octal), no number out of the type's range.
template <typename T>
std::optional<T> whole(std::string_view text) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.size() > 1 && digits[0] == '0') return std::nullopt;
  T value = {};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> real(std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <typename T>
std::string show(T value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof(digits), value).ptr};
}

template <typename T>
std::string range_text(T low, T high) {
  return show(low) + " to " + show(high);
}

std::string complaint(const std::string& wanted, std::string_view found) {
  return "wanted " + wanted + ", found " + (found.empty() ? "nothing" : shown_value(found));
}

// The power of two that a suffix stands for; no suffix: 0.
std::optional<int> shift_of(std::string_view suffix) {
  if (suffix.empty()) return 0;
  const size_t at = std::string_view("kmgt").find(static_cast<char>(suffix[0] | 0x20));
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = suffix.substr(1);
  const bool known = rest.empty() || rest == "B" || rest == "b" || rest == "iB";
  if (!known) return std::nullopt;
  return 10 * (static_cast<int>(at) + 1);
}

std::optional<int64_t> size_of(std::string_view text) {
  const size_t n = std::min(text.find_first_not_of("-0123456789"), text.size());
  const std::optional<int64_t> value = whole<int64_t>(text.substr(0, n));
  const std::optional<int> shift = shift_of(text.substr(n));
  if (!value || !shift || *value < 0 || *value > (INT64_MAX >> *shift)) return std::nullopt;
  return *value << *shift;
}

std::string_view without_blanks(std::string_view text) {
  constexpr const char* kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

std::string shown_value(std::string_view text) {
  const std::string quoted = quote(text);
  return quoted.substr(1, quoted.size() - 2) == text ? std::string(text) : quoted;
}

std::optional<int64_t> parse_whole(std::string_view text) { return whole<int64_t>(text); }

CLI::Validator whole_number(int64_t low, int64_t high) {
  const std::string range = range_text(low, high);
  return {[=](std::string& text) -> std::string {
            const std::optional<int64_t> value = whole<int64_t>(text);
            if (value && *value >= low && *value <= high) return {};
            return complaint(range, text);
          },
          range};
}

CLI::Validator any_seed() {
  const std::string range = range_text(uint64_t{0}, UINT64_MAX);
  return {[=](std::string& text) -> std::string {
            return whole<uint64_t>(text) ? std::string() : complaint(range, text);
          },
          range};
}

CLI::Validator real_number(double low, double high) {
  const std::string range = range_text(low, high);
  return {[=](std::string& text) -> std::string {
            const std::optional<double> value = real(text);
            if (value && *value >= low && *value <= high) return {};  // false for NaN
            return complaint(range, text);
          },
          range};
}

CLI::Validator size_number(int64_t low, int64_t high) {
  const std::string range = range_text(low, high);
  return {[=](std::string& text) -> std::string {
            const std::optional<int64_t> value = size_of(text);
            if (!value || *value < low || *value > high) {
              return complaint(range + ", K, M, G or T behind it", text);
            }
            text = show(*value);
            return {};
          },
          range};
}

CLI::Validator list_of_ids() {
  return {[](std::string& text) -> std::string {
            const auto ids = parse_ids(text);
            return ids ? std::string() : ids.error().message;
          },
          ""};
}

Result<std::vector<int32_t>> parse_ids(std::string_view text) {
  static const std::string wanted =
      "token ids with commas between, each at most " + show(std::numeric_limits<int32_t>::max());
  std::vector<int32_t> ids;
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    more = comma != std::string_view::npos;
    const std::string_view part = without_blanks(text.substr(0, comma));
    const std::optional<int32_t> id = whole<int32_t>(part);
    if (!id) return invalid(complaint(wanted, part));
    ids.push_back(*id);
    if (more) text.remove_prefix(comma + 1);
  }
  return ids;
}

}  // namespace fathom
