// store_crash FOLDER TRIALS SEED [rewrite]: crash trials of the disk store in FOLDER, which is made
// and removed; counts on one line; status 1 where a byte was wrong, a folder did not open, or more
// than one in a hundred published blocks was lost; with rewrite (of compact and erase) where any
// fault was found.
#include <charconv>
#include <cstdio>
#include <cstring>

#include "crash.h"
#include "rewrite_crash.h"

namespace {

int rewrite(const char* folder, int64_t trials, uint64_t seed) {
  const fathom::RewriteCrashCounts counts = fathom::run_rewrite_trials(folder, trials, seed);
  std::printf(
      "trials %lld at-work %lld half-done %lld kept %lld found %lld wrong %lld problems %lld "
      "erased %lld left %lld\n",
      static_cast<long long>(counts.trials), static_cast<long long>(counts.killed_at_work),
      static_cast<long long>(counts.half_done), static_cast<long long>(counts.kept),
      static_cast<long long>(counts.found), static_cast<long long>(counts.wrong),
      static_cast<long long>(counts.problems), static_cast<long long>(counts.erased),
      static_cast<long long>(counts.left));
  if (counts.first_fault.empty()) return 0;
  std::fprintf(stderr, "%s\n", counts.first_fault.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t trials = 0;
  uint64_t seed = 0;
  const auto number = [&](int i, auto& value) {
    const char* end = argv[i] + std::strlen(argv[i]);
    return std::from_chars(argv[i], end, value).ptr == end;
  };
  const bool rewrites = argc == 5 && std::strcmp(argv[4], "rewrite") == 0;
  if ((argc != 4 && !rewrites) || !number(2, trials) || !number(3, seed)) {
    std::fputs("usage: store_crash FOLDER TRIALS SEED [rewrite]\n", stderr);
    return 2;
  }
  if (rewrites) return rewrite(argv[1], trials, seed);
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
