#pragma once

// The words behind a job of a program: `--NAME VALUE` and switches, each at most once. Everything
// that can be wrong with them is found before any work, so that wrong usage is told from failure.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace fathom {

enum class FlagKind {
  kSwitch,  // takes no value
  kText,    // not empty
  kNumber,  // finite, low to high
  kCount,   // decimal digits, low to high
};

struct FlagRule {
  std::string name;  // without the dashes
  FlagKind kind = FlagKind::kText;
  bool required = false;
  double low = 0;
  double high = 1e15;  // doubles below are exact as counts
};

class JobFlags {
 public:
  // kInvalid where a word is no flag of these rules, a value is missing or out of its range, a flag
  // comes twice or a required one not at all. `--help` or `-h` anywhere: has("help"), whatever the
  // other words are.
  static Result<JobFlags> read(const std::vector<std::string>& words,
                               const std::vector<FlagRule>& rules);

  bool has(const std::string& name) const { return values_.contains(name); }
  std::string text(const std::string& name, const std::string& fallback = "") const;
  double number(const std::string& name, double fallback) const;
  int64_t count(const std::string& name, int64_t fallback) const;

  // Where the command line did not give it.
  void set(const std::string& name, const std::string& value) { values_.emplace(name, value); }

 private:
  Result<void> add(const FlagRule& rule, const std::string& value);

  std::map<std::string, std::string> values_;
};

// What a program says of wrong usage, and its exit status then: "fathom: usage: COMMAND: MESSAGE;
// see fathom COMMAND --help".
inline constexpr int kWrongUsage = 2;
std::string usage_line(const std::string& command, const std::string& message);

}  // namespace fathom
