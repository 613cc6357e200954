#pragma once

// Loops over channels on a chosen instruction path. No loop here sums across channels (that is
// dot.h), so every path gives the same bits as long as the operations and their order per channel
// are the same: fused only where std::fma (or its builtin) stands.

#include <cstdint>

#include "ops/backends.h"
#include "tensor/codecs.h"

namespace fathom::cpu {

#if defined(__x86_64__)
template <typename Body>
[[gnu::target("avx2,fma"), gnu::noinline]] void on_avx2(const Body& body) {
  body();
}
template <typename Body>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma"), gnu::noinline]] void on_avx512(
    const Body& body) {
  body();
}
#endif

// Runs body() compiled for the path. The body must be an always_inline lambda that calls nothing
// but always_inline functions and builtins in its loops:
//   on_path(path, [=]() __attribute__((always_inline)) { for (...) y[i] = a * x[i]; });
template <typename Body>
void on_path(CpuPath path, const Body& body) {
#if defined(__x86_64__)
  if (path == CpuPath::kAvx2) return on_avx2(body);
  if (path == CpuPath::kAvx512) return on_avx512(body);
#endif
  (void)path;
  body();
}

// Rows that one range of a parallel loop should have at least, so that its work outweighs waking a
// thread; `cost` counts the element operations of a row.
constexpr int64_t row_grain(int64_t cost) {
  constexpr int64_t kWorthAThread = 1 << 15;
  return cost >= kWorthAThread ? 1 : (kWorthAThread + cost - 1) / (cost > 0 ? cost : 1);
}

void widen(CpuPath path, const Bf16* in, int64_t n, float* out);
void narrow(CpuPath path, const float* in, int64_t n, Bf16* out);

// out[h][c] = fma(p[h][s], v[s][c], out[h][c]) for s = 0, 1, ... in this order.
struct AccumulateArgs {
  float* out = nullptr;  // [n_heads, width], dense
  const float* p = nullptr;
  int64_t p_stride = 0;
  const float* v = nullptr;  // [n_slots, width], dense
  int64_t n_heads = 0;
  int64_t n_slots = 0;
  int64_t width = 0;  // multiple of 16
};
void accumulate(CpuPath path, const AccumulateArgs& args);

}  // namespace fathom::cpu
