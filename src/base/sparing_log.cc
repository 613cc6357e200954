#include "base/sparing_log.h"

namespace fathom {
namespace {

constexpr int64_t kLinesAMinute = 10;
constexpr double kMinuteS = 60;

}  // namespace

void SparingLog::say(const std::string& line, double now_s) {
  const std::lock_guard lock(mutex_);
  if (n_said_ == 0 || now_s - begun_s_ >= kMinuteS) {
    begun_s_ = now_s;
    n_said_ = 0;
  }
  if (n_said_ == kLinesAMinute) {
    ++n_left_out_;
    return;
  }
  ++n_said_;
  const int64_t n_more = std::exchange(n_left_out_, 0);
  write_(n_more == 0 ? line : line + " (" + std::to_string(n_more) + " lines before left out)");
}

}  // namespace fathom
