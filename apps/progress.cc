#include "apps/progress.h"

#include <algorithm>
#include <cstdio>

namespace fathom {

ProgressLine::ProgressLine(bool enabled, std::string what, std::string unit)
    : enabled_(enabled), what_(std::move(what)), unit_(std::move(unit)) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::update(int64_t done, int64_t all) {
  const Clock::time_point now = Clock::now();
  const bool due = now - last_ > std::chrono::milliseconds(100) || done == all;
  if (!enabled_ || !due || all <= 0) return;
  last_ = now;
  constexpr int kWidth = 30;
  const double share = static_cast<double>(done) / static_cast<double>(all);
  const double seconds = std::max(std::chrono::duration<double>(now - start_).count(), 1e-9);
  const double rate = static_cast<double>(done) / seconds;
  const double left = rate > 0 ? static_cast<double>(all - done) / rate : 0;
  std::string bar(static_cast<size_t>(share * kWidth), '#');
  bar.resize(kWidth, '.');
  std::fprintf(stderr, "\r%s [%s] %3.0f %%  %.0f %s/s  %.0f s left\x1b[K", what_.c_str(),
               bar.c_str(), 100 * share, rate, unit_.c_str(), left);
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::clear() {
  if (shown_) std::fprintf(stderr, "\r\x1b[K");
  shown_ = false;
}

}  // namespace fathom
