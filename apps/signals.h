#pragma once

// Signals as the verbs want them.

namespace fathom {

// From here on a model file that becomes shorter while it is mapped, and a stack that finds no room
// to grow, end the program with one line and exit status 1 instead of SIGBUS and SIGSEGV; a file
// that grows beyond the system's limit is a failed write. To be called from main, near the top of
// the stack.
void report_memory_faults();

// While it lives, SIGINT, SIGTERM, SIGHUP and SIGQUIT ask the work to stop and clear up; a second
// one ends the program at once. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  static bool requested();

  // The exit status of a verb that ended with `status`. Where a signal asked to stop, the program
  // ends by that signal, so that a shell knows that its loop should end too.
  static int finish(int status);
};

}  // namespace fathom
