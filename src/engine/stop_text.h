#pragma once

// Text on its way out, held back while it could still become a stop string.

#include <string>
#include <string_view>
#include <vector>

namespace fathom {

class StopText {
 public:
  explicit StopText(std::vector<std::string> stop) : stop_(std::move(stop)) {}

  // Adds text; returns what is safe to show now.
  std::string push(std::string_view text);
  // What was held back, once nothing more comes; nothing after a stop.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stop_;  // none empty
  std::string held_;
  bool stopped_ = false;
};

}  // namespace fathom
