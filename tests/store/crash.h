#pragma once

// Crash trials of the disk store: a process writes blocks and is killed at a random instant, from
// its start on; then the folder is opened again and everything that may be in it is read. Every
// byte that comes back is compared with what its key says.
//
// Four kinds, in turn: killed alone; with bounds so small that segments go all the time; killed and
// the index removed; killed and one file damaged (a turned bit, a cut end, zeros over sectors).
// Of stores in clear first, then of sealed ones, in turn.

#include <cstdint>
#include <string>

namespace fathom {

struct CrashCounts {
  int64_t trials = 0;
  int64_t published = 0;  // blocks that a writer saw findable before its end, undamaged kinds alone
  int64_t found = 0;      // of those
  int64_t read = 0;       // blocks that came back, of all kinds
  int64_t wrong = 0;      // with other bytes than their keys', or into a buffer that was not theirs
  int64_t bad = 0;        // that the store itself refused
  int64_t refused = 0;    // folders that did not open, which none may
  int64_t rebuilt = 0;    // indexes
  int64_t killed_at_work = 0;  // writers that had published something
  std::string first_fault;
};

// `folder` is made and removed. The same seed asks the same of the store; instants differ.
CrashCounts run_crash_trials(const std::string& folder, int64_t n, uint64_t seed);

}  // namespace fathom
