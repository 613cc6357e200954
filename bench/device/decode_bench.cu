// Times of the decode products inside a CUDA graph with operands rotated beyond L2, as CSV:
// op,shape,rows,us,TB/s of all bytes,floor us at 4.3 TB/s,floor / us.

#include <cmath>
#include <memory>
#include <string>

#include "device.cuh"
#include "ops/cuda/dense_decode.h"
#include "ops/cuda/experts_decode.h"
#include "ops/cuda/pack.h"

namespace fathom::device {
namespace {

constexpr double kBandwidth = 4.3e12;

void report(const std::string& op, const std::string& shape, int rows, double us, double bytes) {
  std::printf("%s,%s,%d,%.2f,%.3f,%.2f,%.3f\n", op.c_str(), shape.c_str(), rows, us,
              bytes / us * 1e-6, bytes / kBandwidth * 1e6, bytes / kBandwidth * 1e6 / us);
  std::fflush(stdout);
}

// Random codes; bit 3 clear, so that none is E4M3's NaN.
__global__ void fill_codes(uint64_t* out, size_t count, uint64_t salt) {
  const size_t step = size_t{blockDim.x} * gridDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    out[i] = mixed(i + salt) & 0xF7F7F7F7F7F7F7F7ULL;
  }
}
__global__ void fill_exponents(uint8_t* units, size_t count) {
  const size_t at = blockIdx.x * size_t{cuda::kFp4UnitBytes} + threadIdx.x;
  if (blockIdx.x < count) units[at] = static_cast<uint8_t>(7 + mixed(at) % 6);
}
__global__ void fill_bytes(uint8_t* out, size_t count, uint8_t low, uint8_t range) {
  const size_t step = size_t{blockDim.x} * gridDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    out[i] = static_cast<uint8_t>(low + mixed(i * 3) % range);
  }
}
__global__ void fill_headers(uint8_t* units) {
  if (threadIdx.x < 2)
    units[blockIdx.x * size_t{cuda::kDenseUnitBytes} + threadIdx.x] = 118 + threadIdx.x;
}
void random_codes(const Device<uint8_t>& to, uint64_t salt) {
  fill_codes<<<1024, 256>>>(reinterpret_cast<uint64_t*>(to.get()), to.size() / 8, salt);
  must(cudaDeviceSynchronize(), "fill");
}
void random_scales(const Device<uint8_t>& to, int range) {
  fill_bytes<<<1024, 256>>>(to.get(), to.size(), 118, static_cast<uint8_t>(range));
  must(cudaDeviceSynchronize(), "fill");
}

void bench_dense(int n, int k) {
  const size_t bytes = cuda::dense_bytes(n, k);
  const size_t copies = std::max<size_t>(4, 400000000 / bytes + 1);
  const Device<uint8_t> units(bytes * copies);
  random_codes(units, 1);
  fill_headers<<<static_cast<unsigned>(bytes * copies / cuda::kDenseUnitBytes), 32>>>(units.get());
  const Device<uint8_t> x(size_t{128} * k), x_scales(size_t{128} * k / 32);
  random_codes(x, 99);
  random_scales(x_scales, 1);
  const Device<uint16_t> out(size_t{128} * n);
  for (int m : {1, 8, 16, 32, 64, 128}) {
    const double us = graph_time(static_cast<int>(2 * copies), [&](int i, cudaStream_t s) {
      const size_t c = i % copies;
      must(cuda::dense_decode(
               {units.get() + c * bytes, x.get(), x_scales.get(), out.get(), m, n, k}, s),
           "dense_decode");
    });
    report("dense_fp8", std::to_string(n) + "x" + std::to_string(k), m, us,
           bytes + m * (k * 33. / 32 + n * 2.));
  }
}

struct ExpertBench {
  int experts = 48;
  int d = 5120;
  int width = 2304;
  int top = 6;
  int copies = 2;
  size_t gate_up_bytes = static_cast<size_t>(width) * d / 128 * 2 * 68;
  size_t down_bytes = static_cast<size_t>(width) * d / 128 * 68;
  Device<uint8_t> gate_up{gate_up_bytes * experts * copies};
  Device<uint8_t> down{down_bytes * experts * copies};
  Device<float> gate_up_scales{std::vector<float>(size_t{2} * width * experts, 0x1p-16F)};
  Device<float> down_scales{std::vector<float>(static_cast<size_t>(d) * experts, 0x1p-16F)};
  Device<uint8_t> x{size_t{128} * d}, x_scales{size_t{128} * d / 32};
  Device<uint8_t> hidden{size_t{768} * width}, hidden_scales{size_t{768} * width / 32};
  Device<uint16_t> out{size_t{768} * d}, y{size_t{128} * d}, shared{size_t{128} * d};

  ExpertBench() {
    random_codes(gate_up, 5);
    random_codes(down, 6);
    for (const Device<uint8_t>* units : {&gate_up, &down}) {
      const size_t count = units->size() / cuda::kFp4UnitBytes;
      fill_exponents<<<static_cast<unsigned>(count), 256>>>(units->get(), count);
    }
    random_codes(x, 9);
    random_scales(x_scales, 1);
    must(cudaMemset(shared.get(), 0, shared.size() * 2), "shared");
    must(cudaDeviceSynchronize(), "fill");
  }
};

// One random routing with its grouped form on the device.
struct Routing {
  Device<int> ids, active, n_active, offsets, pair_row, row_pairs;
  Device<float> weights, pair_weight;
  int rows, experts, top, distinct = 0;

  static std::vector<int> draw(int rows, int top, int experts, uint64_t salt) {
    std::vector<int> out;
    for (int r = 0; r < rows; ++r) {
      std::vector<int> order(experts);
      for (int e = 0; e < experts; ++e) order[e] = e;
      for (int j = 0; j < top; ++j) {
        std::swap(order[j], order[j + mixed(salt * 4096 + r * 8 + j) % (experts - j)]);
        out.push_back(order[j]);
      }
    }
    return out;
  }
  Routing(int rows_, int top_, int experts_, uint64_t salt)
      : ids(draw(rows_, top_, experts_, salt)),
        active(experts_),
        n_active(1),
        offsets(experts_ + 1),
        pair_row(static_cast<size_t>(rows_) * top_),
        row_pairs(static_cast<size_t>(rows_) * top_),
        weights(std::vector<float>(static_cast<size_t>(rows_) * top_, 0.25F)),
        pair_weight(static_cast<size_t>(rows_) * top_),
        rows(rows_),
        experts(experts_),
        top(top_) {
    must(cuda::group_routes(group(), nullptr), "routes");
    must(cudaDeviceSynchronize(), "routes");
    distinct = n_active.host()[0];
  }
  cuda::GroupRoutes group() const {
    return {ids.get(),
            weights.get(),
            rows,
            top,
            experts,
            {active.get(), n_active.get(), offsets.get(), pair_row.get(), pair_weight.get(),
             row_pairs.get()}};
  }
};

cuda::ExpertsDecode arguments(const ExpertBench& b, const Routing& r, int copy) {
  cuda::ExpertsDecode a;
  a.gate_up_units = b.gate_up.get() + copy * b.gate_up_bytes * b.experts;
  a.gate_up_scales = b.gate_up_scales.get();
  a.down_units = b.down.get() + copy * b.down_bytes * b.experts;
  a.down_scales = b.down_scales.get();
  a.experts = b.experts;
  a.d = b.d;
  a.width = b.width;
  a.routes = r.group().routes;
  a.max_active = std::min(b.experts, r.rows * b.top);
  a.columns = r.rows <= 32 ? 8 : r.rows <= 64 ? 16 : 32;
  a.x = b.x.get();
  a.x_scales = b.x_scales.get();
  a.limit = 10.F;
  a.hidden = b.hidden.get();
  a.hidden_scales = b.hidden_scales.get();
  a.out = b.out.get();
  return a;
}

void bench_experts() {
  const ExpertBench b;
  for (int rows : {1, 2, 4, 8, 16, 32, 64, 128}) {
    std::vector<std::unique_ptr<Routing>> routings;
    double active = 0;
    constexpr int kRoutings = 8;
    for (int i = 0; i < kRoutings; ++i) {
      routings.push_back(std::make_unique<Routing>(rows, b.top, b.experts, 1000 * rows + i));
      active += routings.back()->distinct / static_cast<double>(kRoutings);
    }
    auto at = [&](int i) {
      return arguments(b, *routings[i % kRoutings], i / kRoutings % b.copies);
    };
    const int nodes = 2 * kRoutings;
    const double up = graph_time(
        nodes, [&](int i, cudaStream_t s) { must(cuda::experts_gate_up(at(i), s), "gate up"); });
    const double down = graph_time(
        nodes, [&](int i, cudaStream_t s) { must(cuda::experts_down(at(i), s), "down"); });
    const double pair = graph_time(nodes, [&](int i, cudaStream_t s) {
      must(cuda::experts_gate_up(at(i), s), "gate up");
      must(cuda::experts_down(at(i), s), "down");
    });
    const double whole = graph_time(nodes, [&](int i, cudaStream_t s) {
      const Routing& r = *routings[i % kRoutings];
      must(cuda::group_routes(r.group(), s), "routes");
      must(cuda::experts_gate_up(at(i), s), "gate up");
      must(cuda::experts_down(at(i), s), "down");
      must(cuda::combine_experts(
               {r.row_pairs.get(), b.out.get(), b.shared.get(), b.y.get(), rows, b.top, b.d}, s),
           "combine");
    });
    const double pairs = static_cast<double>(rows) * b.top;
    const double x_bytes = rows * b.d * 33. / 32;
    const double hidden_bytes = pairs * b.width * 33. / 32;
    const double up_bytes = active * b.gate_up_bytes + x_bytes + hidden_bytes;
    const double down_bytes = active * b.down_bytes + hidden_bytes + pairs * b.d * 2;
    const std::string shape = "48 experts, " + std::to_string(active).substr(0, 4) + " active";
    report("experts_gate_up", shape, rows, up, up_bytes);
    report("experts_down", shape, rows, down, down_bytes);
    report("experts_pair", shape, rows, pair, up_bytes + down_bytes);
    report("experts_routes_pair_combine", shape, rows, whole, up_bytes + down_bytes);
  }
}

// All, or with one argument the experts, with two one dense weight.
int run(int argc, char** argv) {
  if (argc == 3) {
    bench_dense(std::atoi(argv[1]), std::atoi(argv[2]));
    return 0;
  }
  if (argc == 2) {
    bench_experts();
    return 0;
  }
  for (const auto& [n, k] : {std::pair(1792, 5120),
                             {32768, 1280},
                             {5120, 8192},
                             {4608, 5120},
                             {5120, 2304},
                             {4096, 1280},
                             {25600, 6144}}) {
    bench_dense(n, k);
  }
  bench_experts();
  return 0;
}

}  // namespace
}  // namespace fathom::device

int main(int argc, char** argv) { return fathom::device::run(argc, argv); }
