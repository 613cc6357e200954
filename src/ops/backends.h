#pragma once

// The only place that knows which backends exist.

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/ops.h"

namespace fathom {

// kAuto: the GPU where this build and this machine have one, otherwise the CPU. With exact numerics
// all give the same bits.
enum class BackendKind : uint8_t { kAuto, kCpu, kCuda };

// Which instructions the CPU bodies may use. All paths give the same bits.
enum class CpuPath : uint8_t { kBest, kScalar, kAvx2, kAvx512 };

// kExact: the CPU's bits. kFast: on a GPU, products of wide weights, index scores and attention of
// the released shape by kernels with a summation tree of their own (docs/kernels/); what a row
// gives does not depend on its batch with either. The CPU has one set of bits.
// kTrial: fast, with kernels that have yet to pass their checks on a device (docs/kernels/); for
// measuring them beside what they replace.
enum class Numerics : uint8_t { kExact, kFast, kTrial };

struct BackendOptions {
  BackendKind kind = BackendKind::kCpu;
  Numerics numerics = Numerics::kExact;
  int n_threads = 0;  // 0: one for each hardware thread
  CpuPath cpu_path = CpuPath::kBest;
};

// Refuses a path or a GPU that the machine does not have; kExhausted where it does not give the
// threads. Tensors of the words lie in the memory() of what this returns.
Result<std::unique_ptr<Ops>> make_backend(const BackendOptions& options);

// "cuda (NVIDIA H200)", "cpu (avx2)", ...: the best first.
std::vector<std::string> available_backends();

// Whether this build holds the CUDA backend, whatever the machine has.
bool built_with_cuda();

// What the machine gives at best, measured now: the bounds beside which speeds are put.
struct MachineBounds {
  std::string backend;  // "cpu (avx2)"
  int n_threads = 0;
  double read_bytes_per_s = 0;  // all threads, streaming from memory
  double read_bytes_per_s_one_thread = 0;
  double fma_per_s = 0;  // fp32, from registers; multiply and add are one
  double fma_per_s_one_thread = 0;
};

// The GPU's, measured now: reading 2 GiB of its memory, the best of several times.
struct GpuBounds {
  std::string name;
  int64_t memory_bytes = 0;
  double read_bytes_per_s = 0;
};
Result<GpuBounds> measure_gpu();

// The CPU's, whatever the kind. Refuses what make_backend refuses. Takes about `seconds` and 512
// MiB.
Result<MachineBounds> measure_machine(const BackendOptions& options, double seconds);

}  // namespace fathom
