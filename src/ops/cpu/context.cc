#include "ops/cpu/context.h"

#include "ops/cpu/dot_simd.h"

namespace fathom::cpu {
namespace {

bool has(CpuPath path) {
  switch (path) {
    case CpuPath::kScalar:
      return true;
    case CpuPath::kAvx2:
      return has_avx2();
    case CpuPath::kAvx512:
      return has_avx512();
    case CpuPath::kBest:
      break;
  }
  return false;
}

}  // namespace

CpuPath resolve_path(CpuPath wanted) {
  if (wanted != CpuPath::kBest) return has(wanted) ? wanted : CpuPath::kBest;
  for (const CpuPath path : {CpuPath::kAvx512, CpuPath::kAvx2}) {
    if (has(path)) return path;
  }
  return CpuPath::kScalar;
}

const char* path_name(CpuPath path) {
  switch (path) {
    case CpuPath::kBest:
      return "best";
    case CpuPath::kScalar:
      return "scalar";
    case CpuPath::kAvx2:
      return "avx2";
    case CpuPath::kAvx512:
      return "avx512";
  }
  return "?";
}

}  // namespace fathom::cpu
