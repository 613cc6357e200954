#pragma once

// Where a verb reads what it works on: a file that a flag names, or standard input.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace fathom {

// Keeps the numbers of standard input, output and error for these where a program was started
// without them: a file opened later would pass for one. Using them fails as it should.
void hold_standard_streams();

// Standard input line by line. Not for use beside other readers of it, nor by several threads.
class InputLines {
 public:
  explicit InputLines(uint64_t line_bytes_max) : line_bytes_max_(line_bytes_max) {}

  // The next line without its newline, which the last one may lack; nullopt: there is none more. A
  // longer line: kExhausted. Where a signal came that the program handles, the line begun is
  // forgotten: kCancelled.
  Result<std::optional<std::string>> next();

  // A terminal is not read again behind its end.
  bool at_end() const { return at_end_; }

 private:
  uint64_t line_bytes_max_;
  std::string read_;  // not yet given
  size_t seen_ = 0;   // bytes of it without a newline
  bool at_end_ = false;
};

// The whole of standard input. More than max_bytes: kExhausted.
Result<std::string> read_standard_input(uint64_t max_bytes);

// The whole of a file, of standard input ("-"), of a device or a pipe, which is read to its end; a
// pipe without a writer, or that says nothing, is kInvalid. More than max_bytes: kExhausted.
Result<std::string> read_text(const std::string& path, uint64_t max_bytes);

}  // namespace fathom
