#include "ops/backends.h"

#include <algorithm>
#include <chrono>

#include "ops/cpu/context.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/machine.h"

#ifdef FATHOM_WITH_CUDA
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/machine.h"
#endif

namespace fathom {

namespace {

std::string cpu_name(CpuPath path) { return std::string("cpu (") + cpu::path_name(path) + ")"; }

Result<CpuPath> checked_path(const BackendOptions& options) {
  if (options.n_threads < 0) {
    return invalid("backend: threads: wanted 0 or more, found " +
                   std::to_string(options.n_threads));
  }
  const CpuPath path = cpu::resolve_path(options.cpu_path);
  if (path == CpuPath::kBest) {
    return invalid(std::string("backend: cpu path: wanted one that this machine has, found ") +
                   cpu::path_name(options.cpu_path));
  }
  return path;
}

#ifdef FATHOM_WITH_CUDA

Result<std::unique_ptr<Ops>> make_cuda(Numerics numerics) {
  FATHOM_ASSIGN_OR_RETURN(std::unique_ptr<cuda::Memory> memory, cuda::Memory::open());
  return std::unique_ptr<Ops>(std::make_unique<CudaOps>(std::move(memory), numerics));
}

Result<GpuBounds> bounds_of_cuda() {
  FATHOM_ASSIGN_OR_RETURN(const cuda::Gpu gpu, cuda::find_gpu());
  FATHOM_ASSIGN_OR_RETURN(const double read, cuda::read_bytes_per_s());
  return GpuBounds{gpu.name, gpu.memory_bytes, read};
}

constexpr bool kHasCuda = true;

void add_cuda(std::vector<std::string>& names) {
  if (const auto gpu = cuda::find_gpu()) names.push_back("cuda (" + gpu->name + ")");
}

#else

Result<std::unique_ptr<Ops>> make_cuda(Numerics) {
  return not_found(
      "cuda: this program was built without the CUDA backend; ./fathom builds it where nvcc is in "
      "the search path");
}

Result<GpuBounds> bounds_of_cuda() { return make_cuda(Numerics::kExact).error(); }

constexpr bool kHasCuda = false;

void add_cuda(std::vector<std::string>&) {}

#endif

}  // namespace

Result<std::unique_ptr<Ops>> make_backend(const BackendOptions& options) {
  if (options.kind != BackendKind::kCpu) {
    Result<std::unique_ptr<Ops>> ops = make_cuda(options.numerics);
    if (ops || options.kind == BackendKind::kCuda) return ops;
  }
  FATHOM_ASSIGN_OR_RETURN(const CpuPath path, checked_path(options));
  FATHOM_ASSIGN_OR_RETURN(ThreadPool pool, ThreadPool::make(options.n_threads));
  return std::unique_ptr<Ops>(std::make_unique<CpuOps>(std::move(pool), path));
}

Result<GpuBounds> measure_gpu() { return bounds_of_cuda(); }

Result<MachineBounds> measure_machine(const BackendOptions& options, double seconds) {
  FATHOM_ASSIGN_OR_RETURN(const CpuPath path, checked_path(options));
  FATHOM_ASSIGN_OR_RETURN(ThreadPool all, ThreadPool::make(options.n_threads));
  ThreadPool one(1);
  const cpu::ReadBandwidth memory(int64_t{512} << 20);
  MachineBounds bounds = {.backend = cpu_name(path), .n_threads = all.n_threads()};
  const auto keep = [](double& best, double value) { best = std::max(best, value); };
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  do {
    keep(bounds.read_bytes_per_s, memory.bytes_per_s(all, path, 1));
    keep(bounds.read_bytes_per_s_one_thread, memory.bytes_per_s(one, path, 1));
    keep(bounds.fma_per_s, cpu::fma_peak_per_s(all, path, 1));
    keep(bounds.fma_per_s_one_thread, cpu::fma_peak_per_s(one, path, 1));
  } while (std::chrono::duration<double>(Clock::now() - start).count() < seconds);
  return bounds;
}

bool built_with_cuda() { return kHasCuda; }

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  add_cuda(names);
  for (const CpuPath path : {CpuPath::kAvx512, CpuPath::kAvx2, CpuPath::kScalar}) {
    if (cpu::resolve_path(path) == path) names.push_back(cpu_name(path));
  }
  return names;
}

}  // namespace fathom
