#include "ops/cuda/machine.h"

#include <algorithm>

#include "ops/cuda/memory.h"
#include "ops/cuda/ptx.cuh"

namespace fathom::cuda {
namespace {

constexpr int64_t kBytes = int64_t{2} << 30;
constexpr int kBlocks = 264;
constexpr int kThreads = 512;
constexpr int kEach = 8;  // loads in flight
constexpr int kTimes = 12;

__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* from, int64_t n, uint32_t* sum) {
  const int64_t step = int64_t{kBlocks} * kThreads;
  uint32_t mixed = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += kEach * step) {
    uint4 v[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) v[e] = ptx::stream16(from + min(i + e * step, n - 1));
#pragma unroll
    for (const uint4& w : v) mixed ^= w.x ^ w.y ^ w.z ^ w.w;
  }
  if (mixed == 0x12345678u) *sum = mixed;  // never, but the compiler cannot know
}

}  // namespace

Result<double> read_bytes_per_s() {
  FATHOM_ASSIGN_OR_RETURN(const std::unique_ptr<Memory> memory, Memory::open());
  FATHOM_ASSIGN_OR_RETURN(const Buffer from, memory->allocate(kBytes, "bandwidth measurement"));
  FATHOM_ASSIGN_OR_RETURN(const Buffer sum, memory->allocate(sizeof(uint32_t), "sum"));
  memory->check(cudaMemsetAsync(from.data(), 0x5a, kBytes, memory->stream()), "bandwidth");
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  memory->check(cudaEventCreate(&begin), "event");
  memory->check(cudaEventCreate(&end), "event");
  float best = 1e30f;
  for (int i = 0; i < kTimes && !memory->failed(); ++i) {
    memory->check(cudaEventRecord(begin, memory->stream()), "bandwidth");
    read_kernel<<<kBlocks, kThreads, 0, memory->stream()>>>(
        reinterpret_cast<const uint4*>(from.data()), kBytes / 16,
        reinterpret_cast<uint32_t*>(sum.data()));
    memory->check(cudaEventRecord(end, memory->stream()), "bandwidth");
    memory->check(cudaStreamSynchronize(memory->stream()), "bandwidth");
    float ms = 0;
    memory->check(cudaEventElapsedTime(&ms, begin, end), "bandwidth");
    best = std::min(best, ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  FATHOM_RETURN_IF_ERROR(memory->sync());
  return static_cast<double>(kBytes) / (best * 1e-3);
}

}  // namespace fathom::cuda
