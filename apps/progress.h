#pragma once

// A progress line on standard error: what, a bar, the rate and the time left.

#include <chrono>
#include <cstdint>
#include <string>

namespace fathom {

// A rate as people read it, with two or three figures that count; bytes in powers of 1000.
std::string rate_text(double rate, const std::string& unit);

class ProgressLine {
 public:
  // `unit` is plural: "tokens". Nothing is ever printed unless `enabled`.
  ProgressLine(bool enabled, std::string what, std::string unit);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(int64_t done, int64_t all);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool enabled_ = false;
  bool shown_ = false;
  std::string what_;
  std::string unit_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = {};
};

}  // namespace fathom
