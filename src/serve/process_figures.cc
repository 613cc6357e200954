#include "serve/process_figures.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace fathom {
namespace {

constexpr int kStartField = 22;  // of /proc/self/stat, in ticks since the system began

double begun_s() {
  std::ifstream stat("/proc/stat");
  for (std::string word; stat >> word;) {
    double value = 0;
    if (word == "btime" && stat >> value) return value;
  }
  return -1;
}

// The name of the program stands in brackets and may hold anything.
double start_s() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  const double system_s = begun_s();
  if (name_end == std::string::npos || system_s < 0) return -1;
  std::istringstream rest(line.substr(name_end + 1));
  std::string field;
  for (int i = 3; i < kStartField; ++i) rest >> field;
  double ticks = 0;
  if (!(rest >> ticks)) return -1;
  return system_s + ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

int64_t open_files() {
  std::error_code code;
  const std::filesystem::directory_iterator files("/proc/self/fd", code);
  if (code) return -1;
  return std::distance(begin(files), end(files)) - 1;  // the folder that is looked at
}

}  // namespace

ProcessFigures process_figures() {
  ProcessFigures figures = {.start_s = start_s(), .open_files = open_files()};
  rusage used{};
  if (::getrusage(RUSAGE_SELF, &used) == 0) {
    figures.cpu_s = seconds(used.ru_utime) + seconds(used.ru_stime);
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    figures.open_files_max = static_cast<int64_t>(limit.rlim_cur);
  }
  std::ifstream pages("/proc/self/statm");
  int64_t all = 0;
  int64_t resident = 0;
  if (pages >> all >> resident) {
    const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
    figures.virtual_bytes = all * page_bytes;
    figures.resident_bytes = resident * page_bytes;
  }
  return figures;
}

}  // namespace fathom
