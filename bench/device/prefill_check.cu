// Device test and times of the products for many rows: the bits of dense_decode, rows in any
// number, repeated launches.

#include <cstring>

#include "device.cuh"
#include "ops/cuda/dense_prefill.h"
#include "ops/cuda/pack.h"

namespace fathom::device {
namespace {

int failures = 0;

// Codes without NaN; scales around 2^-13.
struct Product {
  int n;
  int k;
  int m;
  Device<uint8_t> units, x, x_scales, pieces;
  Device<uint16_t> out;

  Product(int n_, int k_, int m_)
      : n(n_),
        k(k_),
        m(m_),
        units(cuda::dense_bytes(n_, k_)),
        x(codes(static_cast<size_t>(m_) * k_, 1)),
        x_scales(exponents(static_cast<size_t>(m_) * k_ / 32, 2)),
        pieces(cuda::staged_bytes(m_, k_)),
        out(static_cast<size_t>(m_) * n_) {
    const Device<uint8_t> w(codes(static_cast<size_t>(n) * k, 3));
    const Device<uint8_t> scales(exponents(static_cast<size_t>(n / 32) * (k / 32), 4));
    const Device<unsigned long long> changed(std::vector<unsigned long long>{0});
    must(cuda::pack_dense(
             {w.get(), scales.get(), nullptr, nullptr, n, k, units.get(), changed.get()}, nullptr),
         "pack_dense");
    must(cudaDeviceSynchronize(), "pack_dense run");
  }
  static std::vector<uint8_t> codes(size_t count, uint64_t salt) {
    std::vector<uint8_t> out(count);
    for (size_t i = 0; i < count; i += 8) {
      const uint64_t bits = mixed(i + (salt << 40)) & 0xF7F7F7F7F7F7F7F7ULL;
      std::memcpy(&out[i], &bits, std::min<size_t>(8, count - i));
    }
    return out;
  }
  static std::vector<uint8_t> exponents(size_t count, uint64_t salt) {
    std::vector<uint8_t> out(count);
    for (size_t i = 0; i < count; ++i)
      out[i] = static_cast<uint8_t>(112 + mixed(i + (salt << 40)) % 3);
    return out;
  }
  void stage(cudaStream_t stream = nullptr) const {
    must(cuda::stage_rows({x.get(), x_scales.get(), m, k, pieces.get()}, stream), "stage_rows");
  }
  void multiply(cudaStream_t stream = nullptr) const {
    must(cuda::dense_prefill({units.get(), pieces.get(), out.get(), m, n, k}, stream),
         "dense_prefill");
  }
  // Rows [first, first + 64) by the kernel for few rows.
  std::vector<uint16_t> few(int first, int count) const {
    Device<uint16_t> rows(static_cast<size_t>(count) * n);
    must(cuda::dense_decode(
             {units.get(), x.get() + static_cast<size_t>(first) * k,
              x_scales.get() + static_cast<size_t>(first) * k / 32, rows.get(), count, n, k},
             nullptr),
         "dense_decode");
    must(cudaDeviceSynchronize(), "dense_decode run");
    return rows.host();
  }
};

void check(int n, int k, int m) {
  Product p(n, k, m);
  p.stage();
  p.multiply();
  must(cudaDeviceSynchronize(), "dense_prefill run");
  const std::vector<uint16_t> all = p.out.host();
  size_t differ = 0;
  for (int first = 0; first < m; first += 64) {
    const int count = std::min(64, m - first);
    const std::vector<uint16_t> want = p.few(first, count);
    for (size_t i = 0; i < want.size(); ++i)
      differ += want[i] != all[static_cast<size_t>(first) * n + i];
  }
  bool repeatable = true;
  for (int i = 0; i < 5; ++i) {
    p.out.poison();
    p.multiply();
    must(cudaDeviceSynchronize(), "dense_prefill again");
    repeatable = repeatable && p.out.host() == all;
  }
  std::printf("dense %dx%d, %d rows: %zu of %zu outputs differ from dense_decode, repeatable %d\n",
              n, k, m, differ, all.size(), repeatable);
  failures += (differ != 0) + !repeatable;
}

void bench(int n, int k, int m) {
  const Product p(n, k, m);
  p.stage();
  must(cudaDeviceSynchronize(), "stage_rows run");
  const double staging = graph_time(4, [&](int, cudaStream_t stream) { p.stage(stream); });
  const double us = graph_time(4, [&](int, cudaStream_t stream) { p.multiply(stream); });
  const double flops = 2.0 * n * k * m;
  std::printf("dense_prefill,%dx%d,%d,%.1f,%.1f,%.3f\n", n, k, m, us, staging, flops / us * 1e-9);
}

}  // namespace
}  // namespace fathom::device

// Checks; `bench`: times too.
int main(int argc, char**) {
  using namespace fathom::device;
  for (const int m : {1, 127, 128, 129, 700}) {
    check(128, 2304, m);
    check(192, 1280, m);
    check(1792, 5120, m);
    check(5120, 8192, m);
  }
  if (argc > 1) {
    std::printf("product,shape,rows,us,staging us,PFLOP/s\n");
    for (const int m : {512, 2048, 8192}) {
      bench(32768, 1280, m);
      bench(5120, 8192, m);
      bench(1792, 5120, m);
      bench(5120, 2304, m);
    }
  }
  return failures == 0 ? 0 : 1;
}
