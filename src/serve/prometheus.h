#pragma once

// The text format of Prometheus, version 0.0.4: families of samples, each with its help and type.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom {

// Counts of values by upper bounds, as Prometheus keeps them.
class Histogram {
 public:
  // Ascending bounds; one above all is implied.
  explicit Histogram(std::vector<double> bounds);

  void observe(double value, int64_t n = 1);
  int64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  friend class PrometheusText;

  std::vector<double> bounds_;
  std::vector<int64_t> counts_;  // of values at most the bound and above the one before
  int64_t count_ = 0;
  double sum_ = 0;
};

class PrometheusText {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // `common` labels stand on every sample.
  explicit PrometheusText(Labels common) : common_(std::move(common)) {}

  // Begins a family; the samples that follow are its own.
  void family(const std::string& name, const char* type, const char* help);
  void sample(double value, const Labels& labels = {});
  void sample(int64_t value, const Labels& labels = {});

  // Families of one sample.
  void counter(const std::string& name, const char* help, int64_t value);
  void gauge(const std::string& name, const char* help, double value);
  void histogram(const std::string& name, const char* help, const Histogram& values);

  const std::string& text() const { return text_; }

 private:
  void line(const std::string& name, const Labels& labels, const std::string& value);

  Labels common_;
  std::string family_;
  std::string text_;
};

}  // namespace fathom
