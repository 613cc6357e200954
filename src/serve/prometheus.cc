#include "serve/prometheus.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace fathom {
namespace {

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof(digits), value).ptr};
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value, int64_t n) {
  const auto bound = std::ranges::lower_bound(bounds_, value);
  counts_[static_cast<size_t>(bound - bounds_.begin())] += n;
  count_ += n;
  sum_ += value * static_cast<double>(n);
}

void PrometheusText::family(const std::string& name, const char* type, const char* help) {
  family_ = name;
  text_ += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

void PrometheusText::sample(double value, const Labels& labels) {
  line(family_, labels, number(value));
}

void PrometheusText::sample(int64_t value, const Labels& labels) {
  line(family_, labels, std::to_string(value));
}

void PrometheusText::counter(const std::string& name, const char* help, int64_t value) {
  family(name, "counter", help);
  sample(value);
}

void PrometheusText::gauge(const std::string& name, const char* help, double value) {
  family(name, "gauge", help);
  sample(value);
}

void PrometheusText::histogram(const std::string& name, const char* help, const Histogram& values) {
  family(name, "histogram", help);
  int64_t below = 0;
  for (size_t i = 0; i < values.counts_.size(); ++i) {
    below += values.counts_[i];
    const bool last = i == values.bounds_.size();
    line(name + "_bucket", {{"le", last ? "+Inf" : number(values.bounds_[i])}},
         std::to_string(below));
  }
  line(name + "_sum", {}, number(values.sum_));
  line(name + "_count", {}, std::to_string(values.count_));
}

void PrometheusText::line(const std::string& name, const Labels& labels, const std::string& value) {
  std::string joined;
  for (const Labels* part : {static_cast<const Labels*>(&common_), &labels}) {
    for (const auto& [key, text] : *part) {
      joined += (joined.empty() ? "" : ",") + key + "=\"" + escaped(text) + "\"";
    }
  }
  text_ += joined.empty() ? name : name + "{" + joined + "}";
  text_ += " " + value + "\n";
}

}  // namespace fathom
