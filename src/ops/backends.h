#pragma once

// The only place that knows which backends exist.

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/ops.h"

namespace fathom {

enum class BackendKind : uint8_t { kAuto, kCpu };

// Which instructions the CPU bodies may use. All paths give the same bits.
enum class CpuPath : uint8_t { kBest, kScalar, kAvx2, kAvx512 };

struct BackendOptions {
  BackendKind kind = BackendKind::kAuto;
  int n_threads = 0;  // 0: one for each hardware thread
  CpuPath cpu_path = CpuPath::kBest;
};

// Refuses a path that the machine does not have.
Result<std::unique_ptr<Ops>> make_backend(const BackendOptions& options);

// "cpu (avx2)", ...: the best path first.
std::vector<std::string> available_backends();

}  // namespace fathom
