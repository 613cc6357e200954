// Device test and times of the experts of many rows: the bytes of experts_decode for hidden rows,
// their scales and outputs, rows in any number, repeated launches.

#include <string>

#include "device.cuh"
#include "ops/cuda/experts_prefill.h"
#include "ops/cuda/pack.h"

namespace fathom::device {
namespace {

int failures = 0;

__global__ void fill(uint8_t* out, size_t count, uint64_t salt) {
  const size_t step = size_t{blockDim.x} * gridDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    out[i] = static_cast<uint8_t>(mixed(i + (salt << 40)));
  }
}
// Exponents of packed units, 1 to 12.
__global__ void fill_exponents(uint8_t* units) {
  const size_t at = blockIdx.x * size_t{cuda::kFp4UnitBytes} + threadIdx.x;
  units[at] = static_cast<uint8_t>(1 + mixed(at) % 12);
}

struct Shape {
  int experts;
  int top;
  int d;
  int width;
};

// Weights of a layer's experts, packed codes and exponents at random.
struct Layer {
  Shape s;
  Device<uint8_t> gate_up, down;
  Device<float> gate_up_scales, down_scales;

  explicit Layer(const Shape& shape)
      : s(shape),
        gate_up(units(s) * 2),
        down(units(s)),
        gate_up_scales(scales(static_cast<size_t>(s.experts) * 2 * s.width)),
        down_scales(scales(static_cast<size_t>(s.experts) * s.d)) {
    for (const Device<uint8_t>* all : {&gate_up, &down}) {
      fill<<<1024, 256>>>(all->get(), all->size(), 7);
      fill_exponents<<<static_cast<unsigned>(all->size() / cuda::kFp4UnitBytes), 256>>>(all->get());
    }
    must(cudaDeviceSynchronize(), "weights");
  }
  static size_t units(const Shape& s) {
    return static_cast<size_t>(s.experts) * (s.width / 64) * (s.d / 128) * cuda::kFp4UnitBytes;
  }
  static std::vector<float> scales(size_t n) {
    std::vector<float> out(n);
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(1 + mixed(i) % 4) * 0x1p-17F;
    return out;
  }
};

// Rows and their routes. `skew`: most rows meet the first experts.
struct Step {
  const Layer& layer;
  int rows;
  Device<int> ids, active, n_active, offsets, pair_row, row_pairs;
  Device<float> weights, pair_weight;
  Device<uint8_t> x, x_scales, hidden, hidden_scales, pieces;
  Device<uint16_t> out;
  Device<cuda::ExpertTile> tiles;
  Device<int> n_tiles;

  Step(const Layer& l, int rows_, bool skew)
      : layer(l),
        rows(rows_),
        ids(drawn(l.s, rows, skew)),
        active(l.s.experts),
        n_active(1),
        offsets(l.s.experts + 1),
        pair_row(pairs()),
        row_pairs(pairs()),
        weights(route_weights(pairs())),
        pair_weight(pairs()),
        x(static_cast<size_t>(rows) * l.s.d),
        x_scales(exponents(static_cast<size_t>(rows) * l.s.d / 32)),
        hidden(pairs() * l.s.width),
        hidden_scales(pairs() * l.s.width / 32),
        pieces(cuda::ExpertsPrefill::piece_bytes(static_cast<int>(pairs()), l.s.experts,
                                                 std::max(l.s.d, l.s.width))),
        out(pairs() * l.s.d),
        tiles(cuda::ExpertsPrefill::most_tiles(static_cast<int>(pairs()), l.s.experts)),
        n_tiles(1) {
    std::vector<uint8_t> codes(x.size());
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(mixed(i) & 0xF7);
    x.put(codes);
    must(cuda::group_routes({ids.get(), weights.get(), rows, l.s.top, l.s.experts, routes()},
                            nullptr),
         "group_routes");
    must(cudaDeviceSynchronize(), "group_routes run");
  }
  size_t pairs() const { return static_cast<size_t>(rows) * layer.s.top; }
  cuda::Routes routes() const {
    return {active.get(),   n_active.get(),    offsets.get(),
            pair_row.get(), pair_weight.get(), row_pairs.get()};
  }
  static std::vector<int> drawn(const Shape& s, int rows, bool skew) {
    std::vector<int> out;
    for (int r = 0; r < rows; ++r) {
      std::vector<int> order(s.experts);
      for (int e = 0; e < s.experts; ++e) order[e] = e;
      const int from = skew && mixed(r) % 8 != 0 ? std::min(s.top + 1, s.experts) : s.experts;
      for (int j = 0; j < s.top; ++j) {
        std::swap(order[j], order[j + mixed(r * 16 + j) % (from - j)]);
        out.push_back(order[j]);
      }
    }
    return out;
  }
  static std::vector<float> route_weights(size_t n) {
    std::vector<float> out(n);
    for (size_t i = 0; i < n; ++i) out[i] = 0.05F + static_cast<float>(mixed(i) % 100) * 0.01F;
    return out;
  }
  static std::vector<uint8_t> exponents(size_t n) {
    std::vector<uint8_t> out(n);
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(118 + mixed(i) % 3);
    return out;
  }
  cuda::ExpertsDecode product() const {
    cuda::ExpertsDecode a;
    a.gate_up_units = layer.gate_up.get();
    a.gate_up_scales = layer.gate_up_scales.get();
    a.down_units = layer.down.get();
    a.down_scales = layer.down_scales.get();
    a.experts = layer.s.experts;
    a.d = layer.s.d;
    a.width = layer.s.width;
    a.routes = routes();
    a.max_active = std::min(layer.s.experts, static_cast<int>(pairs()));
    a.columns = 32;
    a.x = x.get();
    a.x_scales = x_scales.get();
    a.limit = 10;
    a.hidden = hidden.get();
    a.hidden_scales = hidden_scales.get();
    a.out = out.get();
    return a;
  }
  void few(cudaStream_t stream = nullptr) const {
    must(cuda::experts_gate_up(product(), stream), "gate up");
    must(cuda::experts_down(product(), stream), "down");
  }
  void many(cudaStream_t stream = nullptr) const {
    must(cuda::experts_prefill(
             {product(), static_cast<int>(pairs()), tiles.get(), n_tiles.get(), pieces.get()},
             stream),
         "experts_prefill");
  }
  void poison() {
    hidden.poison();
    hidden_scales.poison();
    out.poison();
    pieces.poison();
  }
  std::vector<uint8_t> written() const {
    must(cudaDeviceSynchronize(), "run");
    std::vector<uint8_t> all = hidden.host();
    const std::vector<uint8_t> scales = hidden_scales.host();
    all.insert(all.end(), scales.begin(), scales.end());
    const std::vector<uint16_t> rows_out = out.host();
    const auto* bytes = reinterpret_cast<const uint8_t*>(rows_out.data());
    all.insert(all.end(), bytes, bytes + 2 * rows_out.size());
    return all;
  }
};

void check(const Layer& layer, int rows, bool skew) {
  Step step(layer, rows, skew);
  step.few();
  const std::vector<uint8_t> want = step.written();
  size_t differ = 0;
  bool repeatable = true;
  std::vector<uint8_t> first;
  for (int i = 0; i < 4; ++i) {
    step.poison();
    step.many();
    const std::vector<uint8_t> found = step.written();
    if (i == 0) {
      first = found;
      for (size_t at = 0; at < want.size(); ++at) differ += want[at] != found[at];
    }
    repeatable = repeatable && found == first;
  }
  std::printf(
      "experts %d of %dx%d, %d rows%s: %zu of %zu bytes differ from experts_decode, repeatable "
      "%d\n",
      layer.s.experts, layer.s.d, layer.s.width, rows, skew ? " to few" : "", differ, want.size(),
      repeatable);
  failures += (differ != 0) + !repeatable;
}

void bench(const Layer& layer, int rows) {
  const Step step(layer, rows, false);
  const double us = graph_time(2, [&](int, cudaStream_t stream) { step.many(stream); });
  const double few = graph_time(2, [&](int, cudaStream_t stream) { step.few(stream); });
  const double flops = 2.0 * static_cast<double>(step.pairs()) * 3 * layer.s.d * layer.s.width;
  std::printf("experts_prefill,%d experts,%d,%.1f,%.3f,%.1f\n", layer.s.experts, rows, us,
              flops / us * 1e-9, few);
}

}  // namespace
}  // namespace fathom::device

// Checks; `bench`: times too; `small`: few checks.
int main(int argc, char** argv) {
  using namespace fathom::device;
  const std::string mode = argc > 1 ? argv[1] : "";
  const Layer narrow({.experts = 5, .top = 3, .d = 640, .width = 384});
  if (mode == "small") {
    check(narrow, 150, false);
    return failures == 0 ? 0 : 1;
  }
  for (const int rows : {1, 40, 150, 700}) {
    check(narrow, rows, false);
    check(narrow, rows, true);
  }
  const Layer wide({.experts = 16, .top = 6, .d = 5120, .width = 2304});
  for (const int rows : {100, 512, 1024}) check(wide, rows, rows == 512);
  if (mode == "bench") {
    std::printf("product,experts,rows,us,PFLOP/s,us of experts_decode\n");
    const Layer many({.experts = 48, .top = 6, .d = 5120, .width = 2304});
    for (const int rows : {128, 256, 512, 1024}) {
      bench(wide, rows);
      bench(many, rows);
    }
  }
  return failures == 0 ? 0 : 1;
}
