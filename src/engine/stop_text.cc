#include "engine/stop_text.h"

#include <algorithm>
#include <utility>

namespace fathom {

std::string StopText::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t earliest = std::string::npos;
  for (const std::string& stop : stop_) earliest = std::min(earliest, held_.find(stop));
  if (earliest != std::string::npos) {
    stopped_ = true;
    held_.resize(earliest);
    return std::exchange(held_, {});
  }
  // The longest end of the text that begins a stop string stays.
  size_t keep = 0;
  for (const std::string& stop : stop_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (std::string_view(held_).substr(held_.size() - n) == stop.substr(0, n)) keep = n;
    }
  }
  std::string safe = held_.substr(0, held_.size() - keep);
  held_.erase(0, safe.size());
  return safe;
}

std::string StopText::flush() { return std::exchange(held_, {}); }

}  // namespace fathom
