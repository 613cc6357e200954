#pragma once

// The instruction paths that this machine has, for tests.

#include <vector>

#include "ops/cpu/context.h"

namespace fathom {

inline std::vector<CpuPath> paths_here() {
  std::vector<CpuPath> paths = {CpuPath::kScalar};
  for (const CpuPath path : {CpuPath::kAvx2, CpuPath::kAvx512}) {
    if (cpu::resolve_path(path) == path) paths.push_back(path);
  }
  return paths;
}

}  // namespace fathom
