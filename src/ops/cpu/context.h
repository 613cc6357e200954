#pragma once

// What the bodies of CPU words work with: threads, the instructions they may use, and memory.

#include <array>
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/backends.h"
#include "tensor/tensor.h"

namespace fathom::cpu {

// Memory of one word, kept from call to call and grown to the largest one seen. What stands in it
// is lost when the same place is asked for again.
class Scratch {
 public:
  template <typename T>
  T* get(size_t place, int64_t n) {
    Buffer& buffer = buffers_[place];
    const int64_t bytes = n * static_cast<int64_t>(sizeof(T));
    if (buffer.bytes() < bytes) buffer = Buffer(bytes + bytes / 2);
    return reinterpret_cast<T*>(buffer.data());
  }

 private:
  std::array<Buffer, 8> buffers_;
};

// `path` is resolved: not kBest, and present on this machine.
struct Context {
  ThreadPool& pool;
  CpuPath path;
  Scratch& scratch;
};

// The path that `wanted` stands for here; kBest where the machine does not have it.
CpuPath resolve_path(CpuPath wanted);
const char* path_name(CpuPath path);

}  // namespace fathom::cpu
