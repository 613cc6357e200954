// Device test and times of the products for many rows: the bits of dense_decode, rows in any
// number, repeated launches.

#include <cstring>
#include <string>

#include "device.cuh"
#include "ops/cuda/dense_prefill.h"
#include "ops/cuda/pack.h"

namespace fathom::device {
namespace {

int failures = 0;

constexpr float kLimit = 10;

// Codes without NaN; scales around 2^-13. `paired`: a gate and an up matrix, n / 2 rows each.
struct Product {
  int n;
  int k;
  int m;
  bool paired;
  Device<uint8_t> units, x, x_scales, pieces, hidden, hidden_scales;
  Device<uint16_t> out;

  Product(int n_, int k_, int m_, bool paired_ = false)
      : n(n_),
        k(k_),
        m(m_),
        paired(paired_),
        units(cuda::dense_bytes(n_, k_)),
        x(codes(static_cast<size_t>(m_) * k_, 1)),
        x_scales(exponents(static_cast<size_t>(m_) * k_ / 32, 2)),
        pieces(cuda::staged_bytes(m_, k_)),
        hidden(static_cast<size_t>(m_) * n_ / 2),
        hidden_scales(static_cast<size_t>(m_) * n_ / 64),
        out(static_cast<size_t>(m_) * n_) {
    const int rows = paired ? n / 2 : n;
    const Device<uint8_t> w(codes(static_cast<size_t>(rows) * k, 3));
    const Device<uint8_t> scales(exponents(static_cast<size_t>(rows / 32) * (k / 32), 4));
    const Device<uint8_t> up(codes(static_cast<size_t>(rows) * k, 5));
    const Device<uint8_t> up_scales(exponents(static_cast<size_t>(rows / 32) * (k / 32), 6));
    const Device<unsigned long long> changed(std::vector<unsigned long long>{0});
    must(cuda::pack_dense({w.get(), scales.get(), paired ? up.get() : nullptr,
                           paired ? up_scales.get() : nullptr, n, k, units.get(), changed.get()},
                          nullptr),
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
    const cuda::DensePrefill product = {units.get(), pieces.get(), out.get(), m, n, k};
    must(paired ? cuda::dense_pair_prefill({product, hidden.get(), hidden_scales.get(), kLimit},
                                           stream)
                : cuda::dense_prefill(product, stream),
         "dense_prefill");
  }
  // All rows by the kernel for few.
  void few(cudaStream_t stream = nullptr) const {
    const cuda::DenseDecode product = {units.get(), x.get(), x_scales.get(), out.get(), m, n, k};
    must(paired
             ? cuda::dense_pair_decode({product, hidden.get(), hidden_scales.get(), kLimit}, stream)
             : cuda::dense_decode(product, stream),
         "dense_decode");
  }
  void poison() {
    out.poison();
    hidden.poison();
    hidden_scales.poison();
  }
  // What a product writes, as bytes.
  std::vector<uint8_t> written() const {
    must(cudaDeviceSynchronize(), "run");
    std::vector<uint8_t> all = hidden.host();
    const std::vector<uint8_t> scales = hidden_scales.host();
    all.insert(all.end(), scales.begin(), scales.end());
    const std::vector<uint16_t> rows = out.host();
    const auto* bytes = reinterpret_cast<const uint8_t*>(rows.data());
    all.insert(all.end(), bytes, bytes + 2 * rows.size());
    return all;
  }
};

// Where hidden codes differ: the first and the last row, and column of it.
void print_place(const Product& p, const std::vector<uint8_t>& x, const std::vector<uint8_t>& y) {
  const size_t width = static_cast<size_t>(p.n) / 2;
  size_t low_row = ~size_t{0};
  size_t low_column = width;
  size_t high_row = 0;
  size_t high_column = 0;
  size_t count = 0;
  for (size_t at = 0; at < p.hidden.size(); ++at) {
    if (x[at] == y[at]) continue;
    ++count;
    low_row = std::min(low_row, at / width);
    high_row = std::max(high_row, at / width);
    low_column = std::min(low_column, at % width);
    high_column = std::max(high_column, at % width);
  }
  std::printf("  %zu hidden codes: rows %zu to %zu, columns %zu to %zu\n", count, low_row, high_row,
              low_column, high_column);
}

// The kernel for few rows many times: how many runs differ from what the one for many rows gave.
void check_few(int n, int k, int m, bool paired) {
  Product p(n, k, m, paired);
  p.stage();
  p.multiply();
  const std::vector<uint8_t> want = p.written();
  int differ = 0;
  constexpr int kRuns = 40;
  for (int i = 0; i < kRuns; ++i) {
    p.poison();
    p.few();
    const std::vector<uint8_t> found = p.written();
    if (found == want) continue;
    if (++differ <= 4) print_place(p, found, want);
  }
  std::printf("dense_decode%s %dx%d, %d rows: %d of %d runs differ from dense_prefill\n",
              paired ? " pair" : "", n, k, m, differ, kRuns);
  failures += differ != 0;
}

void check(int n, int k, int m, bool paired) {
  Product p(n, k, m, paired);
  p.few();
  const std::vector<uint8_t> want = p.written();
  size_t differ = 0;
  bool repeatable = true;
  std::vector<uint8_t> first;
  for (int i = 0; i < 6; ++i) {
    p.poison();
    p.stage();
    p.multiply();
    const std::vector<uint8_t> found = p.written();
    if (i == 0) {
      first = found;
      for (size_t at = 0; at < want.size(); ++at) differ += want[at] != found[at];
    }
    repeatable = repeatable && found == first;
  }
  std::printf("dense%s %dx%d, %d rows: %zu of %zu bytes differ from dense_decode, repeatable %d\n",
              paired ? " pair" : "", n, k, m, differ, want.size(), repeatable);
  failures += (differ != 0) + !repeatable;
}

void bench(int n, int k, int m) {
  const Product p(n, k, m);
  p.stage();
  must(cudaDeviceSynchronize(), "stage_rows run");
  const double staging = graph_time(4, [&](int, cudaStream_t stream) { p.stage(stream); });
  const double us = graph_time(4, [&](int, cudaStream_t stream) { p.multiply(stream); });
  const double few = graph_time(2, [&](int, cudaStream_t stream) { p.few(stream); });
  const double flops = 2.0 * n * k * m;
  std::printf("dense_prefill,%dx%d,%d,%.1f,%.1f,%.3f,%.1f\n", n, k, m, us, staging,
              flops / us * 1e-9, few);
}

}  // namespace
}  // namespace fathom::device

// Checks; `bench`: times too; `small`: few checks.
int main(int argc, char** argv) {
  using namespace fathom::device;
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "small") {
    check(192, 1280, 200, false);
    check(192, 1280, 200, true);
    return failures == 0 ? 0 : 1;
  }
  for (const int m : {1, 65, 127, 128, 129, 700, 2200}) {
    check(128, 2304, m, false);
    check(192, 1280, m, false);
    check(1792, 5120, m, false);
    check(5120, 8192, m, false);
    check(192, 1280, m, true);
    check(4608, 5120, m, true);
  }
  check_few(4608, 5120, 64, true);
  check_few(4608, 5120, 128, true);
  check_few(4608, 5120, 700, true);
  check_few(4608, 5120, 700, false);
  check_few(25600, 6144, 64, false);
  if (mode == "bench") {
    std::printf("product,shape,rows,us,staging us,PFLOP/s,us of dense_decode\n");
    for (const int m : {65, 128, 512, 2048, 8192}) {
      bench(32768, 1280, m);
      bench(5120, 8192, m);
      bench(25600, 6144, m);
      bench(4608, 5120, m);
      bench(1792, 5120, m);
      bench(5120, 2304, m);
    }
  }
  return failures == 0 ? 0 : 1;
}
