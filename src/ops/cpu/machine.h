#pragma once

// What this machine can do at best, measured: the bounds that figures of fathom are put beside.

#include <cstdint>

#include "base/thread_pool.h"
#include "ops/backends.h"
#include "tensor/tensor.h"

namespace fathom::cpu {

// Bytes a second that all threads of the pool read from memory: one pass over a buffer far larger
// than the caches, whose pages were written before; best of several. `bytes` is rounded down to
// MiB. Fresh zero pages share one physical page and must not be timed.
class ReadBandwidth {
 public:
  explicit ReadBandwidth(int64_t bytes);

  double bytes_per_s(ThreadPool& pool, CpuPath path, int rounds) const;

 private:
  Buffer buffer_;
};

// fp32 fused multiply-adds a second from registers, of all threads together, on a path; a multiply
// and its add count as one. Best of `rounds`.
double fma_peak_per_s(ThreadPool& pool, CpuPath path, int rounds);

}  // namespace fathom::cpu
