#pragma once

// One marker searched for in a stream of bytes.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fathom {

// Finds the first place where `text` ends, one byte at a time, in constant amortised time (Knuth,
// Morris, Pratt). With newlines the match also takes the line feeds right before the text, except
// one that broke off an earlier match ("<\n</think>": the library keeps it); `text` then contains
// none itself. `text` is not empty.
class StreamPattern {
 public:
  explicit StreamPattern(std::string_view text, bool with_newlines = false);

  // True if this byte completes a match, of pending() bytes. Not called again before reset().
  bool feed(char byte);

  // How many of the last bytes belong to the match that has begun.
  size_t pending() const { return newlines_ + matched_; }

  void reset();

 private:
  std::string text_;
  bool with_newlines_;
  std::vector<size_t> fallback_;  // [i]: longest proper border of the first i + 1 bytes
  size_t matched_ = 0;
  size_t newlines_ = 0;  // line feeds right before the matched bytes
};

}  // namespace fathom
