#pragma once

// Starting kernels with the programmatic edge: blocks of a kernel may come to their processors
// while the kernel before it on the stream still runs, so that the ramp of one covers the end of
// the other. Every kernel of this folder begins with enter(), or with what enter() is made of where
// it fetches weights before it waits; nothing that a step writes is touched before the wait.

#include <cuda_runtime.h>

#include "ops/cuda/ptx.cuh"

namespace fathom::cuda {

__device__ inline void enter() {
  ptx::launch_dependents();
  ptx::wait_for_inputs();
}

struct LaunchGrid {
  dim3 blocks;
  unsigned threads = 256;
  size_t shared = 0;   // dynamic bytes
  bool plain = false;  // behind an event of another stream: without the programmatic edge
};

// The error, if any, is also what cudaGetLastError() then tells.
template <typename Args>
cudaError_t launch_dependent(void (*kernel)(Args), const LaunchGrid& grid, const Args& args,
                             cudaStream_t stream) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = dim3(grid.threads);
  config.dynamicSmemBytes = grid.shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = grid.plain ? 0 : 1;
  return cudaLaunchKernelEx(&config, kernel, args);
}

}  // namespace fathom::cuda
