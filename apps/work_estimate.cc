#include "apps/work_estimate.h"

#include <cmath>

#include "apps/common.h"
#include "base/clock.h"

namespace fathom {
namespace {

constexpr double kMeasuredSeconds = 3;      // until the rate is known well enough
constexpr double kWorthSayingSeconds = 30;  // of what is left

}  // namespace

WorkEstimate::WorkEstimate(std::string job, std::string unit, std::string advice)
    : job_(std::move(job)), unit_(std::move(unit)), advice_(std::move(advice)) {}

void WorkEstimate::advance(int64_t units) {
  const double now = steady_seconds();
  if (start_ < 0) start_ = now;
  done_ += units;
  const double spent = now - start_;
  if (said_ || spent < kMeasuredSeconds || done_ == 0) return;
  said_ = true;
  const double left = spent / static_cast<double>(done_) * static_cast<double>(planned_ - done_);
  if (left < kWorthSayingSeconds) return;
  note(job_ + ": at most " + std::to_string(planned_) + " " + unit_ + ", about " +
       about_seconds(left) + " from now; " + advice_);
}

std::string about_seconds(double seconds) {
  const bool minutes = seconds >= 100;
  const auto n = std::llround(minutes ? seconds / 60 : seconds);
  return std::to_string(n) + (minutes ? " minutes" : " seconds");
}

}  // namespace fathom
