// store_crash FOLDER TRIALS SEED: crash trials of the disk store in FOLDER, which is made and
// removed; counts on one line; status 1 where a byte was wrong, a folder did not open, or more than
// one in a hundred published blocks was lost.
#include <charconv>
#include <cstdio>
#include <cstring>

#include "crash.h"

int main(int argc, char** argv) {
  int64_t trials = 0;
  uint64_t seed = 0;
  const auto number = [&](int i, auto& value) {
    const char* end = argv[i] + std::strlen(argv[i]);
    return std::from_chars(argv[i], end, value).ptr == end;
  };
  if (argc != 4 || !number(2, trials) || !number(3, seed)) {
    std::fputs("usage: store_crash FOLDER TRIALS SEED\n", stderr);
    return 2;
  }
  const fathom::CrashCounts counts = fathom::run_crash_trials(argv[1], trials, seed);
  std::printf(
      "trials %lld at-work %lld published %lld found %lld read %lld bad %lld wrong %lld "
      "refused %lld rebuilt %lld\n",
      static_cast<long long>(counts.trials), static_cast<long long>(counts.killed_at_work),
      static_cast<long long>(counts.published), static_cast<long long>(counts.found),
      static_cast<long long>(counts.read), static_cast<long long>(counts.bad),
      static_cast<long long>(counts.wrong), static_cast<long long>(counts.refused),
      static_cast<long long>(counts.rebuilt));
  if (!counts.first_fault.empty()) std::fprintf(stderr, "%s\n", counts.first_fault.c_str());
  const bool ok = counts.wrong == 0 && counts.refused == 0 && counts.first_fault.empty() &&
                  counts.found * 100 >= counts.published * 99;
  return ok ? 0 : 1;
}
