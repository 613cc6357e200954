#include "program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace fathom {
namespace {

constexpr int kMillisecondsMax = 60'000;  // without a word of the program

using Pipe = std::array<int, 2>;  // read end, write end

Pipe make_pipe() {
  Pipe ends = {-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
  return ends;
}

[[noreturn]] void become(const std::vector<std::string>& args) {
  std::vector<char*> argv = {const_cast<char*>(FATHOM_BINARY)};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  ::execv(FATHOM_BINARY, argv.data());
  ::_exit(127);
}

int status_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Appends what is there; false at the end.
bool read_some(int file, std::string& text) {
  std::array<char, 65536> piece;
  const ssize_t n = ::read(file, piece.data(), piece.size());
  if (n > 0) text.append(piece.data(), static_cast<size_t>(n));
  return n > 0;
}

void collect(const Pipe& out, const Pipe& err, Outcome& outcome, pid_t child) {
  std::array<pollfd, 2> open = {{{out[0], POLLIN, 0}, {err[0], POLLIN, 0}}};
  while (open[0].fd >= 0 || open[1].fd >= 0) {
    if (::poll(open.data(), open.size(), kMillisecondsMax) <= 0) {
      ::kill(child, SIGKILL);
      break;
    }
    if (open[0].revents != 0 && !read_some(out[0], outcome.out)) open[0].fd = -1;
    if (open[1].revents != 0 && !read_some(err[0], outcome.err)) open[1].fd = -1;
  }
}

}  // namespace

Outcome run_program(const Invocation& invocation) {
  ::signal(SIGPIPE, SIG_IGN);  // of this process: a program may not read its input
  const Pipe in = make_pipe();
  const Pipe out = make_pipe();
  const Pipe err = make_pipe();
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGPIPE, SIG_DFL);
    ::dup2(in[0], 0);
    ::dup2(out[1], 1);
    ::dup2(err[1], 2);
    if (!invocation.input_path.empty()) {
      ::dup2(::open(invocation.input_path.c_str(), O_RDONLY | O_CLOEXEC), 0);
    }
    if (invocation.closed_input) ::close(0);
    if (invocation.address_bytes > 0) {
      const rlimit limit = {invocation.address_bytes, invocation.address_bytes};
      ::setrlimit(RLIMIT_AS, &limit);
    }
    if (invocation.stack_bytes > 0) {
      const rlimit limit = {invocation.stack_bytes, invocation.stack_bytes};
      ::setrlimit(RLIMIT_STACK, &limit);
    }
    if (invocation.file_bytes > 0) {
      const rlimit limit = {invocation.file_bytes, invocation.file_bytes};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (!invocation.output_path.empty()) {
      ::dup2(::open(invocation.output_path.c_str(), O_WRONLY | O_CLOEXEC), 1);
    }
    become(invocation.args);
  }
  ::close(in[0]);
  ::close(out[1]);
  ::close(err[1]);
  // Inputs of these tests are smaller than a pipe holds.
  if (::write(in[1], invocation.input.data(), invocation.input.size()) < 0) std::abort();
  ::close(in[1]);
  if (invocation.meanwhile) invocation.meanwhile(child);
  Outcome outcome;
  collect(out, err, outcome, child);
  ::close(out[0]);
  ::close(err[0]);
  outcome.status = status_of(child);
  return outcome;
}

Outcome run_in_terminal(const std::vector<std::string>& args, const Talk& talk) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) become(args);
  Outcome outcome;
  const std::string ahead = talk("");
  if (::write(terminal, ahead.data(), ahead.size()) < 0) ::kill(child, SIGKILL);
  while (true) {
    pollfd open = {terminal, POLLIN, 0};
    if (::poll(&open, 1, kMillisecondsMax) <= 0) {
      ::kill(child, SIGKILL);
      break;
    }
    if (!read_some(terminal, outcome.out)) break;
    const std::string typed = talk(outcome.out);
    if (!typed.empty() && ::write(terminal, typed.data(), typed.size()) < 0) break;
  }
  outcome.status = status_of(child);
  ::close(terminal);
  return outcome;
}

}  // namespace fathom
