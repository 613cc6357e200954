#pragma once

// SparingLog: lines of what may go wrong thousands of times a second. It writes ten a minute; the
// next one says how many were left out. Thread rule: any thread.

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

namespace fathom {

class SparingLog {
 public:
  // `write` is called by say().
  explicit SparingLog(std::function<void(const std::string&)> write) : write_(std::move(write)) {}
  // `now_s`: of a steady clock.
  void say(const std::string& line, double now_s);

 private:
  const std::function<void(const std::string&)> write_;
  std::mutex mutex_;
  double begun_s_ = 0;  // of this minute
  int64_t n_said_ = 0;  // in it
  int64_t n_left_out_ = 0;
};

}  // namespace fathom
