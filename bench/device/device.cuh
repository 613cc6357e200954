#pragma once

// What the device programs of this folder share: stopping on a CUDA error, device buffers, random
// bytes made on the device from a counter, and the time of a launch inside a CUDA graph.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace fathom::device {

inline void must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

// Owned device memory, poisoned with 0xFF bytes (NaN in every float format).
template <typename T>
class Device {
 public:
  explicit Device(size_t count) : count_(count) {
    must(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc");
    must(cudaMemset(data_, 0xFF, count * sizeof(T)), "cudaMemset");
  }
  explicit Device(const std::vector<T>& host) : Device(host.size()) { put(host); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { cudaFree(data_); }

  T* get() const { return data_; }
  size_t size() const { return count_; }
  void poison() { must(cudaMemset(data_, 0xFF, count_ * sizeof(T)), "cudaMemset"); }
  void put(const std::vector<T>& host) {
    must(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), "to device");
  }
  std::vector<T> host() const {
    std::vector<T> out(count_);
    must(cudaMemcpy(out.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "to host");
    return out;
  }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

__host__ __device__ inline uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// The time of one call of `launch(i)` in microseconds: `nodes` calls in a graph, median of 21
// replays after warm-up. `launch` chooses operand copy i % copies itself.
inline double graph_time(int nodes, const std::function<void(int, cudaStream_t)>& launch) {
  cudaStream_t stream = nullptr;
  must(cudaStreamCreate(&stream), "stream");
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < nodes; ++i) launch(i, stream);
  cudaGraph_t graph = nullptr;
  must(cudaStreamEndCapture(stream, &graph), "end of capture");
  cudaGraphExec_t exec = nullptr;
  must(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t from = nullptr;
  cudaEvent_t to = nullptr;
  must(cudaEventCreate(&from), "event");
  must(cudaEventCreate(&to), "event");
  std::vector<double> times;
  for (int r = 0; r < 26; ++r) {
    must(cudaEventRecord(from, stream), "record");
    must(cudaGraphLaunch(exec, stream), "graph");
    must(cudaEventRecord(to, stream), "record");
    must(cudaStreamSynchronize(stream), "graph run");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, from, to), "elapsed");
    if (r >= 5) times.push_back(1e3 * ms / nodes);
  }
  std::sort(times.begin(), times.end());
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaEventDestroy(from);
  cudaEventDestroy(to);
  cudaStreamDestroy(stream);
  return times[times.size() / 2];
}

struct Grid {
  dim3 blocks;
  dim3 threads;
  bool dependent;  // launched with the programmatic edge to the kernel before
};
template <typename... Formal, typename... Actual>
void launch_kernel(void (*kernel)(Formal...), const Grid& grid, cudaStream_t stream,
                   Actual... actual) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = grid.dependent ? 1 : 0;
  must(cudaLaunchKernelEx(&config, kernel, static_cast<Formal>(actual)...), "launch");
}

}  // namespace fathom::device
