#include "apps/progress.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace fathom {

// "595 MB/s", "12.5 tokens/s", "0.031 cases/s".
std::string rate_text(double rate, const std::string& unit) {
  char text[32];
  if (unit != "bytes") {
    const char* form = rate >= 99.95 ? "%.0f" : "%.1f";
    std::snprintf(text, sizeof(text), rate < 0.95 ? "%.2g" : form, rate);
    return text + (" " + unit) + "/s";
  }
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  size_t at = 0;
  for (; rate >= 999.5 && at + 1 < std::size(kUnits); ++at) rate /= 1000;
  std::snprintf(text, sizeof(text), rate >= 9.95 || at == 0 ? "%.0f" : "%.1f", rate);
  return text + std::string(" ") + kUnits[at] + "/s";
}

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
  // Nothing is known before a part is done.
  std::string rest;
  if (done > 0) {
    char left[32];
    std::snprintf(left, sizeof(left), "  %.0f s left", static_cast<double>(all - done) / rate);
    rest = "  " + rate_text(rate, unit_) + left;
  }
  std::string bar(static_cast<size_t>(share * kWidth), '#');
  bar.resize(kWidth, '.');
  std::fprintf(stderr, "\r%s [%s] %3.0f %%%s\x1b[K", what_.c_str(), bar.c_str(), 100 * share,
               rest.c_str());
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::clear() {
  if (shown_) std::fprintf(stderr, "\r\x1b[K");
  shown_ = false;
}

}  // namespace fathom
