#include "base/job_flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace fathom {
namespace {

template <typename T>
std::optional<T> whole_of(const std::string& text) {
  T value = {};
  const char* end = text.data() + text.size();
  const auto [read, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || read != end) return std::nullopt;
  return value;
}

std::string shown(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof(digits), value).ptr};
}

bool is_good(const FlagRule& rule, const std::string& value) {
  if (rule.kind == FlagKind::kText) return !value.empty();
  const auto in_range = [&](double number) {  // false for NaN
    return number >= rule.low && number <= rule.high;
  };
  if (rule.kind == FlagKind::kNumber) {
    const auto number = whole_of<double>(value);
    return number && in_range(*number);
  }
  const auto count = whole_of<int64_t>(value);
  return count && in_range(static_cast<double>(*count));
}

std::string wanted_of(const FlagRule& rule) {
  if (rule.kind == FlagKind::kText) return "a value";
  return (rule.kind == FlagKind::kCount ? "a whole number from " : "a number from ") +
         shown(rule.low) + " to " + shown(rule.high);
}

}  // namespace

Result<void> JobFlags::add(const FlagRule& rule, const std::string& value) {
  if (rule.kind != FlagKind::kSwitch && !is_good(rule, value)) {
    return invalid("--" + rule.name + ": wanted " + wanted_of(rule) + ", found " +
                   (value.empty() ? "nothing" : value));
  }
  if (!values_.emplace(rule.name, value).second) {
    return invalid("--" + rule.name + ": wanted it once, found it twice");
  }
  return {};
}

Result<JobFlags> JobFlags::read(const std::vector<std::string>& words,
                                const std::vector<FlagRule>& rules) {
  JobFlags flags;
  for (const std::string& word : words) {
    if (word == "--help" || word == "-h") return flags.set("help", ""), flags;
  }
  for (size_t i = 0; i < words.size(); ++i) {
    const auto rule =
        std::ranges::find_if(rules, [&](const FlagRule& r) { return "--" + r.name == words[i]; });
    if (rule == rules.end()) return invalid("wanted a flag of the job, found " + words[i]);
    const bool has_value = rule->kind != FlagKind::kSwitch;
    if (has_value && i + 1 == words.size()) {
      return invalid(words[i] + ": wanted a value, found none");
    }
    FATHOM_RETURN_IF_ERROR(flags.add(*rule, has_value ? words[i + 1] : std::string()));
    i += has_value ? 1 : 0;
  }
  for (const FlagRule& rule : rules) {
    if (rule.required && !flags.has(rule.name)) {
      return invalid("--" + rule.name + ": wanted a value, found none");
    }
  }
  return flags;
}

std::string JobFlags::text(const std::string& name, const std::string& fallback) const {
  const auto found = values_.find(name);
  return found == values_.end() ? fallback : found->second;
}

double JobFlags::number(const std::string& name, double fallback) const {
  return has(name) ? whole_of<double>(text(name)).value_or(fallback) : fallback;
}

int64_t JobFlags::count(const std::string& name, int64_t fallback) const {
  return has(name) ? whole_of<int64_t>(text(name)).value_or(fallback) : fallback;
}

std::string usage_line(const std::string& command, const std::string& message) {
  return "fathom: usage: " + command + ": " + message + "; see fathom " + command + " --help\n";
}

}  // namespace fathom
