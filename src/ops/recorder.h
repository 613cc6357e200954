#pragma once

// Recorder: a step that a backend keeps as it was launched and runs again, with nothing of the host
// in between. Words between begin() and end() are kept and not run. What they read from the host is
// read once, while they are kept, except the rows of the step: each run finishes by moving every
// sequence on by one position. So a recording is for a step of one row a sequence, each next row
// behind the last one, and whatever else changes from step to step is computed by its words.
//
// One recording at a time. Thread rule: as for the backend.

#include <cstdint>

#include "base/result.h"

namespace fathom {

class Recorder {
 public:
  virtual ~Recorder() = default;

  // Positions of all runs are below `horizon`.
  virtual void begin(int64_t horizon) = 0;
  // The failure of a word, or of keeping them: then there is no recording.
  virtual Result<void> end() = 0;
  // False once memory that the recording uses was given back; then it is not run again.
  virtual bool valid() const = 0;
  // How many recordings were begun: tells whether the one at hand is still the caller's.
  virtual int64_t number() const = 0;
  virtual void run() = 0;
};

}  // namespace fathom
