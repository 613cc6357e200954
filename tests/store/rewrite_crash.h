#pragma once

// Crash trials of `fathom store compact` and `erase`: a process writes a store's segments anew and
// is killed at a random instant; then the folder is looked at, opened, and the job done to its end.
// Of stores in clear and sealed ones in turn; every byte that is read is compared with what its key
// says, and all bytes of the folder are searched for what was erased.

#include <cstdint>
#include <string>

namespace fathom {

struct RewriteCrashCounts {
  int64_t trials = 0;
  int64_t killed_at_work = 0;  // the others had ended
  int64_t half_done = 0;       // kills that left something for the next run to do
  int64_t kept = 0;            // blocks that were not to go
  int64_t found = 0;           // of those
  int64_t wrong = 0;           // reads that brought other bytes
  int64_t problems = 0;  // that an audit found behind a kill, but for rows of a file that went
  int64_t erased = 0;    // blocks that were to go
  int64_t left = 0;      // of those, with a trace in the folder once the job was done
  std::string first_fault;
};

// `folder` is made and removed. The same seed asks the same of the store; instants differ.
RewriteCrashCounts run_rewrite_trials(const std::string& folder, int64_t n, uint64_t seed);

}  // namespace fathom
