#include "apps/signals.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string_view>

namespace fathom {
namespace {

// SIGPIPE: whoever read the progress went away. SIGXCPU: the time that the system allows is over.
constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU};

volatile sig_atomic_t stop_signal = 0;

void on_stop(int signal) { stop_signal = signal; }

auto handler_of(int signal) {
  struct sigaction action = {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

// Only what is safe in the middle of anything.
[[noreturn]] void end_with(std::string_view line) {
  [[maybe_unused]] const ssize_t n = ::write(2, line.data(), line.size());
  ::_exit(1);
}

void on_bus_error(int /*signal*/) { end_with("fathom: a model file changed while it was read\n"); }

// Where the main stack may lie, lowest and highest address.
uintptr_t stack_low = 0;
uintptr_t stack_high = 0;

// Any other fault is a bug, which ends the program as ever.
void on_segment_fault(int signal, siginfo_t* info, void* /*context*/) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (address >= stack_low && address < stack_high) {
    end_with("fathom: memory: wanted more for the stack than the system gives\n");
  }
  ::signal(signal, SIG_DFL);  // and the instruction is tried again
}

// The stack that grew no further cannot carry a handler: it has one of its own.
void report_stack_faults() {
  static std::byte own_stack[1 << 16];
  struct sigaction before = {};
  ::sigaction(SIGSEGV, nullptr, &before);
  if (before.sa_handler != SIG_DFL) return;  // a sanitizer's
  rlimit limit = {};
  ::getrlimit(RLIMIT_STACK, &limit);
  constexpr rlim_t kMost = rlim_t{64} << 20;
  stack_high = reinterpret_cast<uintptr_t>(&limit);
  stack_low = stack_high - std::min(limit.rlim_cur, kMost);
  const stack_t alternate = {.ss_sp = own_stack, .ss_flags = 0, .ss_size = sizeof(own_stack)};
  ::sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = on_segment_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace

void report_memory_faults() {
  struct sigaction action = {};
  action.sa_handler = on_bus_error;
  ::sigaction(SIGBUS, &action, nullptr);
  ::signal(SIGXFSZ, SIG_IGN);  // a file beyond the system's limit is a write that fails
  report_stack_faults();
}

StopSignals::StopSignals() {
  stop_signal = 0;
  struct sigaction action = {};
  action.sa_handler = on_stop;
  for (const int signal : kStopSignals) {
    // A second word into the same pipe is nobody's wish to end at once.
    action.sa_flags = signal == SIGPIPE ? SA_RESTART : SA_RESETHAND | SA_RESTART;
    if (handler_of(signal) != SIG_IGN) ::sigaction(signal, &action, nullptr);  // nohup, a shell's &
  }
}

StopSignals::~StopSignals() {
  for (const int signal : kStopSignals) {
    if (handler_of(signal) == on_stop) ::signal(signal, SIG_DFL);
  }
}

bool StopSignals::requested() { return stop_signal != 0; }

int StopSignals::finish(int status) {
  if (!requested()) return status;
  std::cout.flush();
  std::fflush(stdout);
  ::signal(stop_signal, SIG_DFL);
  ::raise(stop_signal);
  return status;
}

}  // namespace fathom
