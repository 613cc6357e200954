#pragma once

// A reader of the text format of Prometheus, version 0.0.4, for tests: it takes what the format
// allows and nothing else, and checks that families are whole and histograms add up.

#include <gtest/gtest.h>

#include <charconv>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace fathom {

class PrometheusReader {
 public:
  explicit PrometheusReader(const std::string& text) {
    EXPECT_TRUE(text.empty() || text.back() == '\n');
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) read(line);
    for (const auto& [name, type] : types_) EXPECT_TRUE(type != "histogram" || adds_up(name));
  }

  // Of the sample with this name and, among others, these labels: {k="v",...} joined as written.
  double value(const std::string& name, const std::string& labels = "") const {
    double found = -1;
    int n = 0;
    for (const auto& [key, value] : samples_) {
      if (key.first != name || key.second.find(labels) == std::string::npos) continue;
      found = value;
      ++n;
    }
    EXPECT_EQ(n, 1) << name << " " << labels;
    return found;
  }
  bool has(const std::string& name, const std::string& labels = "") const {
    for (const auto& [key, value] : samples_) {
      if (key.first == name && key.second.find(labels) != std::string::npos) return true;
    }
    return false;
  }
  const std::map<std::string, std::string>& types() const { return types_; }

 private:
  void read(const std::string& line) {
    static const std::regex kHelp(R"(# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) .+)");
    static const std::regex kType(R"(# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram))");
    static const std::regex kSample(
        R"(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{([a-zA-Z_]\w*="(\\[\\"n]|[^\\"])*",?)+\})? (\S+))");
    std::smatch match;
    if (std::regex_match(line, match, kHelp)) return;
    if (std::regex_match(line, match, kType)) {
      EXPECT_TRUE(types_.emplace(match[1], match[2]).second) << line;
      family_ = match[1];
      return;
    }
    ASSERT_TRUE(std::regex_match(line, match, kSample)) << line;
    const std::string name = match[1];
    const bool parts = types_[family_] == "histogram";
    EXPECT_TRUE(parts ? name == family_ + "_bucket" || name == family_ + "_sum" ||
                            name == family_ + "_count"
                      : name == family_)
        << line;
    double value = 0;
    const std::string digits = match[5];
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    EXPECT_TRUE(error == std::errc() && *end == '\0') << line;
    EXPECT_TRUE(types_[family_] != "counter" || value >= 0) << line;
    EXPECT_TRUE(samples_.emplace(std::pair(name, match[2]), value).second) << line;
    order_.emplace_back(name, value);
  }

  // Buckets never fall, and the last one is the count.
  bool adds_up(const std::string& name) const {
    double last = 0;
    for (const auto& [sample, value] : order_) {
      if (sample == name + "_bucket" && value < last) return false;
      if (sample == name + "_bucket") last = value;
      if (sample == name + "_count" && value != last) return false;
    }
    return value(name + "_bucket", "le=\"+Inf\"") == last;
  }

  std::string family_;
  std::map<std::string, std::string> types_;
  std::map<std::pair<std::string, std::string>, double> samples_;
  std::vector<std::pair<std::string, double>> order_;
};

}  // namespace fathom
