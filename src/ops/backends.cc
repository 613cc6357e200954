#include "ops/backends.h"

#include "ops/cpu/context.h"
#include "ops/cpu/cpu_ops.h"

namespace fathom {

Result<std::unique_ptr<Ops>> make_backend(const BackendOptions& options) {
  if (options.n_threads < 0) {
    return invalid("backend: threads: wanted 0 or more, found " +
                   std::to_string(options.n_threads));
  }
  const CpuPath path = cpu::resolve_path(options.cpu_path);
  if (path == CpuPath::kBest) {
    return invalid(std::string("backend: cpu path: wanted one that this machine has, found ") +
                   cpu::path_name(options.cpu_path));
  }
  return std::unique_ptr<Ops>(std::make_unique<CpuOps>(options.n_threads, path));
}

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  for (const CpuPath path : {CpuPath::kAvx512, CpuPath::kAvx2, CpuPath::kScalar}) {
    if (cpu::resolve_path(path) == path) {
      names.push_back(std::string("cpu (") + cpu::path_name(path) + ")");
    }
  }
  return names;
}

}  // namespace fathom
