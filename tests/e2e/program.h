#pragma once

// Runs the built program as a person does, and keeps what it said.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fathom {

struct Invocation {
  std::vector<std::string> args;
  std::string input;                          // on standard input, from a pipe
  bool closed_input = false;                  // standard input is not open at all
  std::string input_path = {};                // standard input instead; empty: the pipe
  std::string output_path = {};               // standard output; empty: kept
  uint64_t address_bytes = 0;                 // limit of its address space; 0: none
  uint64_t stack_bytes = 0;                   // limit of each thread's stack; 0: that of the test
  uint64_t file_bytes = 0;                    // limit of a file that it writes; 0: none
  std::function<void(pid_t)> meanwhile = {};  // called when it runs
};

struct Outcome {
  int status = -1;  // exit status, or 128 + the signal
  std::string out;
  std::string err;
};

// FATHOM_BINARY with the arguments. Ends it after a minute.
Outcome run_program(const Invocation& invocation);

// The same with a terminal as standard input, output and error. `talk` sees all that was shown so
// far, at first nothing, each time something new comes and answers what to type; empty: nothing.
using Talk = std::function<std::string(const std::string& shown)>;
Outcome run_in_terminal(const std::vector<std::string>& args, const Talk& talk);

}  // namespace fathom
