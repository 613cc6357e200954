#pragma once

// How long a job of minutes takes, said once on standard error when its first seconds tell.

#include <cstdint>
#include <string>

namespace fathom {

class WorkEstimate {
 public:
  // `advice` says how the job is made shorter.
  WorkEstimate(std::string job, std::string unit, std::string advice);

  void plan(int64_t units) { planned_ += units; }
  // Units done since the last call, counted from the first call, which starts the clock.
  void advance(int64_t units);
  void disable() { said_ = true; }

 private:
  std::string job_;
  std::string unit_;  // plural
  std::string advice_;
  int64_t planned_ = 0;
  int64_t done_ = 0;
  double start_ = -1;
  bool said_ = false;
};

// "40 seconds", "18 minutes": for a person.
std::string about_seconds(double seconds);

}  // namespace fathom
