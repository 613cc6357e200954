// Device test and times of the products of rows by their BF16 values: against sums in double
// precision; a row has the same bits in any number of rows; repeated launches.

#include <cmath>
#include <cstring>
#include <string>

#include "device.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/value_product.h"

namespace fathom::device {
namespace {

int failures = 0;

// BF16 of about normal size and both signs.
__global__ void fill_values(uint16_t* out, size_t count, uint64_t salt) {
  const size_t step = size_t{blockDim.x} * gridDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    const uint64_t bits = mixed(i + (salt << 40));
    out[i] = static_cast<uint16_t>((bits & 0x807F) | ((120 + (bits >> 20) % 8) << 7));
  }
}
__global__ void fill_codes(uint8_t* out, size_t count, uint64_t salt) {
  const size_t step = size_t{blockDim.x} * gridDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    out[i] = static_cast<uint8_t>(mixed(i + (salt << 40)) & 0xF7);
  }
}
__global__ void fill_scales(uint8_t* out, size_t count) {
  const size_t step = size_t{blockDim.x} * gridDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    out[i] = static_cast<uint8_t>(112 + mixed(i) % 10);
  }
}

struct Shape {
  int n;
  int k;
  int groups;
  bool codes;  // FP8 with block scales
};

struct Weights {
  Shape s;
  Device<uint16_t> values;
  Device<uint8_t> codes, scales, units;

  explicit Weights(const Shape& shape)
      : s(shape),
        values(s.codes ? 1 : size()),
        codes(s.codes ? size() : 1),
        scales(s.codes ? size() / 1024 : 1),
        units(cuda::value_bytes(s.n, s.k)) {
    if (s.codes) {
      fill_codes<<<1024, 256>>>(codes.get(), codes.size(), 3);
      fill_scales<<<64, 256>>>(scales.get(), scales.size());
    } else {
      fill_values<<<1024, 256>>>(values.get(), values.size(), 3);
    }
    must(cuda::pack_values(
             {s.codes ? nullptr : values.get(), codes.get(), scales.get(), s.n, s.k, units.get()},
             nullptr),
         "pack_values");
    must(cudaDeviceSynchronize(), "weights");
  }
  size_t size() const { return static_cast<size_t>(s.n) * s.k; }
};

struct Product {
  const Weights& w;
  int m;
  bool fp32;
  Device<uint16_t> x, out_bf16;
  Device<float> out;
  Device<uint8_t> pieces;

  Product(const Weights& weights, int rows, bool fp32_)
      : w(weights),
        m(rows),
        fp32(fp32_),
        x(static_cast<size_t>(m) * width()),
        out_bf16(fp32 ? 1 : static_cast<size_t>(m) * w.s.n),
        out(fp32 ? static_cast<size_t>(m) * w.s.n : 1),
        pieces(cuda::value_piece_bytes(m, width())) {
    fill_values<<<1024, 256>>>(x.get(), x.size(), 5);
    must(cudaDeviceSynchronize(), "rows");
  }
  int width() const { return w.s.k * w.s.groups; }
  cuda::ValueProduct args() const {
    cuda::ValueProduct p;
    p.units = w.units.get();
    p.x = x.get();
    p.x_stride = width();
    p.pieces = pieces.get();
    p.out = fp32 ? out.get() : nullptr;
    p.out_bf16 = fp32 ? nullptr : out_bf16.get();
    p.out_stride = w.s.n;
    p.m = m;
    p.n = w.s.n;
    p.k = w.s.k;
    p.groups = w.s.groups;
    return p;
  }
  void run(cudaStream_t stream = nullptr) const {
    must(cuda::value_product(args(), stream), "value_product");
  }
  // Outputs of the first `rows` rows, as bytes.
  std::vector<uint8_t> written(int rows) const {
    must(cudaDeviceSynchronize(), "run");
    const size_t bytes = static_cast<size_t>(rows) * w.s.n * (fp32 ? 4 : 2);
    std::vector<uint8_t> all(bytes);
    const void* from = fp32 ? static_cast<const void*>(out.get()) : out_bf16.get();
    must(cudaMemcpy(all.data(), from, bytes, cudaMemcpyDeviceToHost), "outputs");
    return all;
  }
  void poison() {
    out.poison();
    out_bf16.poison();
    pieces.poison();
  }
};

// Sum and sum of magnitudes of an output, from the weight as it lies.
struct Sums {
  double sum;
  double size;
};
__global__ void reference(Sums* out, const uint16_t* values, const uint8_t* codes,
                          const uint8_t* scales, cuda::ValueProduct p) {
  const int o = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  const uint16_t* x = p.x + row * p.x_stride + o / (p.n / p.groups) * p.k;
  Sums mine = {};
  for (int i = threadIdx.x; i < p.k; i += 32) {
    const size_t at = static_cast<size_t>(o) * p.k + i;
    double w = 0;
    if (values != nullptr) {
      w = cuda::fast::widen(values[at]);
    } else {
      w = double{cuda::fast::from_e4m3x2(codes[at]).x} *
          cuda::fast::power(scales[static_cast<size_t>(o / 32) * (p.k / 32) + i / 32]);
    }
    const double product = w * cuda::fast::widen(x[i]);
    mine.sum += product;
    mine.size += fabs(product);
  }
  for (int step = 16; step > 0; step /= 2) {
    mine.sum += __shfl_down_sync(0xFFFFFFFFU, mine.sum, step);
    mine.size += __shfl_down_sync(0xFFFFFFFFU, mine.size, step);
  }
  if (threadIdx.x == 0) out[static_cast<size_t>(row) * p.n + o] = mine;
}

float value_at(const std::vector<uint8_t>& bytes, size_t i, bool fp32) {
  uint32_t bits = 0;
  if (fp32) {
    std::memcpy(&bits, &bytes[4 * i], 4);
  } else {
    bits = static_cast<uint32_t>(bytes[2 * i] | bytes[2 * i + 1] << 8) << 16;
  }
  float value = 0;
  std::memcpy(&value, &bits, 4);
  return value;
}

void check(const Shape& shape, bool fp32) {
  const Weights w(shape);
  const int most = 300;
  const Product all(w, most, fp32);
  all.run();
  const std::vector<uint8_t> rows = all.written(most);
  const Device<Sums> sums(static_cast<size_t>(most) * shape.n);
  reference<<<dim3(shape.n, most), 32>>>(sums.get(), shape.codes ? nullptr : w.values.get(),
                                         w.codes.get(), w.scales.get(), all.args());
  must(cudaDeviceSynchronize(), "reference");
  const std::vector<Sums> want = sums.host();
  // Beyond the rounding of a BF16 output, a step may drop 2^-23 of what stands.
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double rounding = fp32 ? 0 : std::fabs(want[i].sum) * 0x1p-8;
    const double error = std::fabs(value_at(rows, i, fp32) - want[i].sum) - rounding;
    const double relative = error / want[i].size;
    worst = relative <= worst ? worst : relative;
  }
  int64_t differ = 0;
  for (const int m : {1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 300}) {
    Product few(w, m, fp32);
    for (int i = 0; i < 3; ++i) {
      few.poison();
      few.run();
      const std::vector<uint8_t> found = few.written(m);
      differ += std::memcmp(found.data(), rows.data(), found.size()) != 0;
    }
  }
  std::printf(
      "values %dx%d%s, %d groups: error beyond rounding %.2e of the terms, %lld of 42 runs "
      "differ\n",
      shape.n, shape.k, shape.codes ? " FP8" : "", shape.groups, worst,
      static_cast<long long>(differ));
  failures += !(worst < 2e-5) + (differ != 0);
}

void bench(const char* name, const Shape& shape, bool fp32) {
  const Weights w(shape);
  for (const int m : {1, 8, 16, 32, 64, 128, 512, 4096}) {
    if (m > 64 && shape.n > 100000) continue;
    const Product p(w, m, fp32);
    const double us = graph_time(4, [&](int, cudaStream_t stream) { p.run(stream); });
    const double bytes = static_cast<double>(cuda::value_bytes(shape.n, shape.k));
    const double flops = 2.0 * m * static_cast<double>(w.size());
    std::printf("value_product,%s,%d,%.1f,%.3f,%.3f\n", name, m, us, bytes / us * 1e-6,
                flops / us * 1e-9);
  }
}

}  // namespace
}  // namespace fathom::device

// Checks; `bench`: times too; `small`: few checks.
int main(int argc, char** argv) {
  using namespace fathom::device;
  const std::string mode = argc > 1 ? argv[1] : "";
  check({.n = 192, .k = 320, .groups = 1, .codes = false}, true);
  if (mode == "small") return failures == 0 ? 0 : 1;
  check({.n = 384, .k = 1280, .groups = 3, .codes = true}, false);
  check({.n = 2112, .k = 5120, .groups = 1, .codes = false}, true);
  check({.n = 8192, .k = 4096, .groups = 8, .codes = true}, false);
  if (mode == "bench") {
    std::printf("product,weight,rows,us,TB/s of the weight,PFLOP/s\n");
    bench("head", {.n = 129280, .k = 5120, .groups = 1, .codes = false}, true);
    bench("wo_a", {.n = 8192, .k = 4096, .groups = 8, .codes = true}, false);
  }
  return failures == 0 ? 0 : 1;
}
