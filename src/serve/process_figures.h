#pragma once

// What the system says of this process, for metrics: the figures that Prometheus' own clients give.

#include <cstdint>

namespace fathom {

// -1: the system does not say.
struct ProcessFigures {
  double start_s = -1;  // since 1970
  double cpu_s = -1;
  int64_t resident_bytes = -1;
  int64_t virtual_bytes = -1;
  int64_t open_files = -1;
  int64_t open_files_max = -1;
};

// As of now. Any thread.
ProcessFigures process_figures();

}  // namespace fathom
