// Device tests of the decode products: against double precision on the dequantised operands, batch
// invariance, repeated launches. Exit code 1 and a line for each failure.

#include <cmath>
#include <cstring>
#include <string>

#include "device.cuh"
#include "ops/cuda/dense_decode.h"
#include "ops/cuda/experts_decode.h"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/pack.h"

namespace fathom::device {
namespace {

using Bytes = std::vector<uint8_t>;
constexpr int kRows = 128;
int failures = 0;

void expect(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  std::printf("FAILED %s\n", what.c_str());
}

uint64_t seed = 7;
double uniform() { return (static_cast<double>(mixed(seed++) >> 11) + 0.5) * 0x1p-53; }
double normal() {
  return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
}

double e4m3_value(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}
uint8_t e4m3_code(double value) { return __nv_fp8_e4m3(static_cast<float>(value)).__x; }
double e2m1_value(int code) {
  constexpr double kValues[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -kValues[code & 7] : kValues[code & 7];
}
double bf16_value(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, 4);
  return value;
}
float bf16_rounded(double value) {
  return __bfloat162float(__float2bfloat16_rn(static_cast<float>(value)));
}

// Normal values as codes, from a table: 65,536 draws are enough for a matrix.
Bytes normal_codes(size_t count) {
  static Bytes table;
  if (table.empty()) {
    table.resize(65536);
    for (uint8_t& c : table) c = e4m3_code(std::min(448., std::max(-448., 110 * normal())));
  }
  Bytes out(count);
  for (size_t i = 0; i < count; i += 4) {
    const uint64_t bits = mixed(seed++);
    for (size_t j = 0; j < 4 && i + j < count; ++j) out[i + j] = table[bits >> (16 * j) & 0xFFFF];
  }
  return out;
}
Bytes spread_scales(size_t count, double sigma) {
  Bytes out(count);
  for (uint8_t& s : out) s = static_cast<uint8_t>(113 + std::lround(sigma * normal()));
  return out;
}

// A8 rows: normal with one per cent of outliers x 20 (the spread that rebasing must survive).
struct Rows {
  Bytes codes;
  Bytes scales;
};
uint8_t a8_scale(float amax) {
  const float t = std::max(amax, 1e-4F) * (1.0F / 448.0F);
  int exponent = 0;
  const float m = std::frexp(t, &exponent);
  return static_cast<uint8_t>(127 + exponent - (m == 0.5F ? 1 : 0));
}
Rows random_rows(int rows, int k) {
  Rows out{Bytes(static_cast<size_t>(rows) * k), Bytes(static_cast<size_t>(rows) * k / 32)};
  for (size_t b = 0; b < out.scales.size(); ++b) {
    float values[32];
    float amax = 0;
    for (float& v : values) {
      v = bf16_rounded(normal() * (uniform() < 0.01 ? 20 : 1));
      amax = std::max(amax, std::fabs(v));
    }
    out.scales[b] = a8_scale(amax);
    for (int i = 0; i < 32; ++i) {
      out.codes[32 * b + i] = e4m3_code(std::ldexp(values[i], 127 - out.scales[b]));
    }
  }
  return out;
}
double value_of(const Rows& x, int row, int k, int i) {
  const size_t at = static_cast<size_t>(row) * k + i;
  return e4m3_value(x.codes[at]) * std::ldexp(1., x.scales[at / 32] - 127);
}

struct Error {
  double squared = 0;
  double reference = 0;
  double worst = 0;  // beyond bf16 rounding, over the reference's own size
  void add(double got, double want) {
    squared += (got - want) * (got - want);
    reference += want * want;
    worst = std::max(worst, std::fabs(got - want) - std::fabs(want) * 0x1p-8);
  }
  double relative() const { return std::sqrt(squared / reference); }
};

template <typename T>
bool rows_equal(const std::vector<T>& x, const std::vector<T>& y, size_t count) {
  return std::memcmp(x.data(), y.data(), count * sizeof(T)) == 0;
}

struct Matrix {
  int n;
  int k;
  Bytes codes;
  Bytes scales;
  double at(int row, int column) const {
    const size_t place = static_cast<size_t>(row) * k + column;
    return e4m3_value(codes[place]) *
           std::ldexp(1., scales[static_cast<size_t>(row / 32) * (k / 32) + column / 32] - 127);
  }
};
Matrix random_matrix(int n, int k) {
  return {n, k, normal_codes(static_cast<size_t>(n) * k),
          spread_scales(static_cast<size_t>(n / 32) * (k / 32), 0.7)};
}

void check_dense(int n, int k) {
  const Matrix w = random_matrix(n, k);
  const Rows x = random_rows(kRows, k);
  const Device<uint8_t> codes(w.codes), scales(w.scales), units(cuda::dense_bytes(n, k));
  const Device<unsigned long long> changed(std::vector<unsigned long long>{0});
  must(
      cuda::pack_dense(
          {codes.get(), scales.get(), nullptr, nullptr, n, k, units.get(), changed.get()}, nullptr),
      "pack_dense");
  const Device<uint8_t> xc(x.codes), xs(x.scales);
  Device<uint16_t> out(static_cast<size_t>(kRows) * n);
  auto run = [&](int m) {
    out.poison();
    must(cuda::dense_decode({units.get(), xc.get(), xs.get(), out.get(), m, n, k}, nullptr),
         "dense_decode");
    must(cudaDeviceSynchronize(), "dense_decode run");
    return out.host();
  };
  const std::vector<uint16_t> all = run(kRows);
  Error error;
  for (int i = 0; i < 4000; ++i) {
    const int row = static_cast<int>(uniform() * kRows);
    const int column = static_cast<int>(uniform() * n);
    double sum = 0;
    for (int j = 0; j < k; ++j) sum += value_of(x, row, k, j) * w.at(column, j);
    error.add(bf16_value(all[static_cast<size_t>(row) * n + column]), sum);
  }
  const double rms = std::sqrt(error.reference / 4000);
  const std::string name = "dense " + std::to_string(n) + "x" + std::to_string(k);
  bool invariant = true;
  for (int m : {1, 2, 7, 8, 9, 16, 17, 32, 48, 100}) {
    invariant = invariant && rows_equal(all, run(m), static_cast<size_t>(m) * n);
  }
  bool repeatable = true;
  const std::vector<uint16_t> first = run(16);
  for (int i = 0; i < 20; ++i)
    repeatable = repeatable && rows_equal(first, run(16), size_t{16} * n);
  std::printf(
      "%s: relative L2 %.2e, worst beyond rounding %.1e of rms, changed by rebasing %.2e, "
      "invariant %d, repeatable %d\n",
      name.c_str(), error.relative(), error.worst / rms,
      static_cast<double>(changed.host()[0]) / w.codes.size(), invariant, repeatable);
  expect(error.relative() < 1.9e-3 && error.worst < 2e-3 * rms, name + ": error");
  expect(invariant, name + ": rows depend on the batch");
  expect(repeatable, name + ": launches differ");
}

struct Hidden {
  Bytes codes;
  Bytes scales;
};

// The 32 hidden values of one A8 block from exact sums; compares codes, returns how many differ.
struct HiddenBlock {
  int width;
  int row;
  int block;
  double weight;
};
template <typename GateUp>
int hidden_differs(const Hidden& got, const HiddenBlock& place, GateUp sums) {
  const auto [width, row, block, weight] = place;
  float h[32];
  float amax = 0;
  for (int i = 0; i < 32; ++i) {
    const auto [gate_sum, up_sum] = sums(32 * block + i);
    const float gate = std::min(bf16_rounded(gate_sum), 10.F);
    const float up = std::min(std::max(bf16_rounded(up_sum), -10.F), 10.F);
    const float silu = gate * (1.F / (1.F + std::exp(-gate)));
    h[i] = bf16_rounded(static_cast<float>(weight) * (silu * up));
    amax = std::max(amax, std::fabs(h[i]));
  }
  const uint8_t scale = a8_scale(amax);
  const size_t at = static_cast<size_t>(row) * width + 32 * block;
  if (got.scales[at / 32] != scale) return 32;
  int count = 0;
  for (int i = 0; i < 32; ++i) {
    count += got.codes[at + i] != e4m3_code(std::ldexp(h[i], 127 - scale));
  }
  return count;
}

void check_pair(int width, int k) {
  const Matrix gate = random_matrix(width, k);
  const Matrix up = random_matrix(width, k);
  const Rows x = random_rows(kRows, k);
  const Device<uint8_t> gc(gate.codes), gs(gate.scales), uc(up.codes), us(up.scales);
  const Device<uint8_t> units(cuda::dense_bytes(2 * width, k));
  const Device<unsigned long long> changed(std::vector<unsigned long long>{0});
  must(cuda::pack_dense(
           {gc.get(), gs.get(), uc.get(), us.get(), 2 * width, k, units.get(), changed.get()},
           nullptr),
       "pack pair");
  const Device<uint8_t> xc(x.codes), xs(x.scales);
  Device<uint8_t> hidden(static_cast<size_t>(kRows) * width);
  Device<uint8_t> hidden_scales(static_cast<size_t>(kRows) * width / 32);
  auto run = [&](int m) {
    hidden.poison();
    hidden_scales.poison();
    cuda::DensePairDecode pair;
    pair.product = {units.get(), xc.get(), xs.get(), nullptr, m, 2 * width, k};
    pair.codes = hidden.get();
    pair.scales = hidden_scales.get();
    pair.limit = 10.F;
    must(cuda::dense_pair_decode(pair, nullptr), "dense_pair_decode");
    must(cudaDeviceSynchronize(), "pair run");
    return Hidden{hidden.host(), hidden_scales.host()};
  };
  const Hidden all = run(kRows);
  int differing = 0;
  for (int i = 0; i < 100; ++i) {
    const int row = static_cast<int>(uniform() * kRows);
    differing += hidden_differs(all, {width, row, static_cast<int>(uniform() * (width / 32)), 1.},
                                [&](int h) {
                                  double g = 0;
                                  double u = 0;
                                  for (int j = 0; j < k; ++j) {
                                    const double v = value_of(x, row, k, j);
                                    g += v * gate.at(h, j);
                                    u += v * up.at(h, j);
                                  }
                                  return std::pair(g, u);
                                });
  }
  bool invariant = true;
  for (int m : {1, 8, 48}) {
    const Hidden some = run(m);
    invariant = invariant && rows_equal(all.codes, some.codes, static_cast<size_t>(m) * width) &&
                rows_equal(all.scales, some.scales, static_cast<size_t>(m) * width / 32);
  }
  std::printf("pair 2x%dx%d: of 3,200 hidden codes %d differ from exact sums, invariant %d\n",
              width, k, differing, invariant);
  expect(differing < 100, "pair: hidden codes");
  expect(invariant, "pair: rows depend on the batch");
}

// --- experts -------------------------------------------------------------------------------------

struct Fp4Matrix {
  int n = 0;
  int k = 0;
  Bytes codes;
  Bytes scales;
  double at(int row, int column) const {
    const size_t place = static_cast<size_t>(row) * k + column;
    return e2m1_value(codes[place / 2] >> (4 * (column & 1)) & 15) *
           std::ldexp(1., scales[place / 32] - 127);
  }
};
Fp4Matrix random_fp4(int n, int k) {
  Fp4Matrix out{n, k, Bytes(static_cast<size_t>(n) * k / 2),
                spread_scales(static_cast<size_t>(n) * k / 32, 1.0)};
  for (uint8_t& c : out.codes) c = static_cast<uint8_t>(mixed(seed++));
  return out;
}

constexpr int kExperts = 8;
constexpr int kTop = 6;

struct ExpertSet {
  int d;
  int width;
  std::vector<Fp4Matrix> gate, up, down;
  Device<uint8_t> gate_up_units, down_units;
  Device<float> gate_up_scales, down_scales;
  unsigned long long changed = 0;

  ExpertSet(int d_, int width_)
      : d(d_),
        width(width_),
        gate_up_units(static_cast<size_t>(kExperts) * width * d / 128 * 2 * 68),
        down_units(static_cast<size_t>(kExperts) * width * d / 128 * 68),
        gate_up_scales(static_cast<size_t>(kExperts) * 2 * width),
        down_scales(static_cast<size_t>(kExperts) * d) {
    const Device<unsigned long long> count(std::vector<unsigned long long>{0});
    for (int e = 0; e < kExperts; ++e) {
      gate.push_back(random_fp4(width, d));
      up.push_back(random_fp4(width, d));
      down.push_back(random_fp4(d, width));
      const Device<uint8_t> gc(gate[e].codes), gs(gate[e].scales), uc(up[e].codes),
          us(up[e].scales);
      const Device<uint8_t> dc(down[e].codes), ds(down[e].scales);
      must(cuda::pack_fp4({gc.get(), gs.get(), uc.get(), us.get(), 2 * width, d,
                           gate_up_units.get() + static_cast<size_t>(e) * width * d / 128 * 2 * 68,
                           gate_up_scales.get() + static_cast<size_t>(e) * 2 * width, count.get()},
                          nullptr),
           "pack gate up");
      must(cuda::pack_fp4({dc.get(), ds.get(), nullptr, nullptr, d, width,
                           down_units.get() + static_cast<size_t>(e) * width * d / 128 * 68,
                           down_scales.get() + static_cast<size_t>(e) * d, count.get()},
                          nullptr),
           "pack down");
      must(cudaDeviceSynchronize(), "pack");
    }
    changed = count.host()[0];
  }
};

struct Step {
  Hidden hidden;
  std::vector<uint16_t> pairs;
  std::vector<uint16_t> y;
  std::vector<int> offsets, pair_row, row_pairs;
  std::vector<float> pair_weight;
};

struct Inputs {
  Rows x;
  std::vector<int> ids;
  std::vector<float> weights;
};
Step run_experts(const ExpertSet& w, const Inputs& in, const Device<uint16_t>& shared, int rows) {
  const auto& [x, ids, weights] = in;
  const size_t pairs = static_cast<size_t>(rows) * kTop;
  const Device<int> id(std::vector<int>(ids.begin(), ids.begin() + pairs));
  const Device<float> weight(std::vector<float>(weights.begin(), weights.begin() + pairs));
  const Device<int> active(kExperts), n_active(1), offsets(kExperts + 1), pair_row(pairs);
  const Device<int> row_pairs(pairs);
  const Device<float> pair_weight(pairs);
  const cuda::Routes routes{active.get(),   n_active.get(),    offsets.get(),
                            pair_row.get(), pair_weight.get(), row_pairs.get()};
  must(cuda::group_routes({id.get(), weight.get(), rows, kTop, kExperts, routes}, nullptr),
       "routes");
  const Device<uint8_t> xc(x.codes), xs(x.scales);
  const Device<uint8_t> hidden(pairs * w.width), hidden_scales(pairs * w.width / 32);
  const Device<uint16_t> out(pairs * w.d), y(static_cast<size_t>(rows) * w.d);
  cuda::ExpertsDecode args;
  args.gate_up_units = w.gate_up_units.get();
  args.gate_up_scales = w.gate_up_scales.get();
  args.down_units = w.down_units.get();
  args.down_scales = w.down_scales.get();
  args.experts = kExperts;
  args.d = w.d;
  args.width = w.width;
  args.routes = routes;
  args.max_active = kExperts;
  args.columns = std::min(rows, 32);
  args.x = xc.get();
  args.x_scales = xs.get();
  args.limit = 10.F;
  args.hidden = hidden.get();
  args.hidden_scales = hidden_scales.get();
  args.out = out.get();
  must(cuda::experts_gate_up(args, nullptr), "gate up");
  must(cuda::experts_down(args, nullptr), "down");
  must(cuda::combine_experts({row_pairs.get(), out.get(), shared.get(), y.get(), rows, kTop, w.d},
                             nullptr),
       "combine");
  must(cudaDeviceSynchronize(), "experts run");
  return {{hidden.host(), hidden_scales.host()},
          out.host(),
          y.host(),
          offsets.host(),
          pair_row.host(),
          row_pairs.host(),
          pair_weight.host()};
}

void check_routes(const Step& step, const std::vector<int>& ids, const std::vector<float>& weights,
                  int rows) {
  bool good = step.offsets[kExperts] == rows * kTop;
  for (int r = 0; r < rows; ++r) {
    int before = -1;
    for (int j = 0; j < kTop; ++j) {
      const int p = step.row_pairs[r * kTop + j];
      good = good && p > before && step.pair_row[p] == r;
      before = p;
      int e = 0;
      while (e < kExperts && step.offsets[e + 1] <= p) ++e;
      int place = 0;
      while (place < kTop && ids[r * kTop + place] != e) ++place;
      good = good && place < kTop && weights[r * kTop + place] == step.pair_weight[p];
    }
  }
  expect(good, "routes");
}

void check_hidden_and_down(const ExpertSet& w, const Rows& x, const Step& step, int rows) {
  int differing = 0;
  Error error;
  for (int i = 0; i < 60; ++i) {
    const int p = static_cast<int>(uniform() * rows * kTop);
    int e = 0;
    while (step.offsets[e + 1] <= p) ++e;
    const int row = step.pair_row[p];
    differing += hidden_differs(
        step.hidden,
        {w.width, p, static_cast<int>(uniform() * (w.width / 32)), step.pair_weight[p]},
        [&](int h) {
          double g = 0;
          double u = 0;
          for (int j = 0; j < w.d; ++j) {
            const double v = value_of(x, row, w.d, j);
            g += v * w.gate[e].at(h, j);
            u += v * w.up[e].at(h, j);
          }
          return std::pair(g, u);
        });
    const Rows hidden{step.hidden.codes, step.hidden.scales};
    for (int c = 0; c < 16; ++c) {
      const int column = static_cast<int>(uniform() * w.d);
      double sum = 0;
      for (int j = 0; j < w.width; ++j)
        sum += value_of(hidden, p, w.width, j) * w.down[e].at(column, j);
      error.add(bf16_value(step.pairs[static_cast<size_t>(p) * w.d + column]), sum);
    }
  }
  const double rms = std::sqrt(error.reference / 960);
  std::printf(
      "experts, %d rows: of 1,920 hidden codes %d differ from exact sums; down relative L2 "
      "%.2e, worst beyond rounding %.1e of rms\n",
      rows, differing, error.relative(), error.worst / rms);
  expect(differing < 60, "experts: hidden codes");
  expect(error.relative() < 1.9e-3 && error.worst < 2e-3 * rms, "experts: down error");
}

void check_experts(int d, int width) {
  const ExpertSet w(d, width);
  const Rows x = random_rows(kRows, d);
  std::vector<int> ids;
  std::vector<float> weights;
  for (int r = 0; r < kRows; ++r) {
    int order[kExperts] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int j = 0; j < kTop; ++j) {
      std::swap(order[j], order[j + static_cast<int>(uniform() * (kExperts - j))]);
      ids.push_back(order[j]);
      weights.push_back(static_cast<float>(uniform()));
    }
  }
  std::vector<uint16_t> shared(static_cast<size_t>(kRows) * d);
  for (uint16_t& v : shared) v = static_cast<uint16_t>(0x3F00 + mixed(seed++) % 256);
  const Device<uint16_t> shared_rows(shared);
  const Inputs in{x, ids, weights};
  const Step all = run_experts(w, in, shared_rows, kRows);
  std::printf("experts %d x (%d, %d): values changed by rebasing %llu\n", kExperts, d, width,
              w.changed);
  check_routes(all, ids, weights, kRows);
  check_hidden_and_down(w, x, all, kRows);
  bool exact = true;
  for (int r = 0; r < kRows; r += 13) {
    for (int c = 0; c < d; ++c) {
      float sum = 0;
      for (int j = 0; j < kTop; ++j) {
        sum += static_cast<float>(
            bf16_value(all.pairs[static_cast<size_t>(all.row_pairs[r * kTop + j]) * d + c]));
      }
      sum += static_cast<float>(bf16_value(shared[static_cast<size_t>(r) * d + c]));
      exact = exact && bf16_rounded(sum) == bf16_value(all.y[static_cast<size_t>(r) * d + c]);
    }
  }
  expect(exact, "experts: combine");
  bool invariant = true;
  for (int m : {1, 2, 8, 16, 48}) {
    const Step some = run_experts(w, in, shared_rows, m);
    check_routes(some, ids, weights, m);
    invariant = invariant && rows_equal(all.y, some.y, static_cast<size_t>(m) * d);
  }
  expect(invariant, "experts: rows depend on the batch");
  bool repeatable = true;
  for (int i = 0; i < 20; ++i) {
    repeatable = repeatable &&
                 run_experts(w, in, shared_rows, 48).y == run_experts(w, in, shared_rows, 48).y;
  }
  expect(repeatable, "experts: launches differ");
  std::printf("experts: invariant %d, repeatable %d\n", invariant, repeatable);
}

// Every kernel once at the smallest shapes, for tools under which a launch takes seconds.
void launch_each_once() {
  constexpr int kN = 128;
  constexpr int kK = 1280;  // segments of a cluster
  const Matrix w = random_matrix(kN, kK);
  const Matrix up = random_matrix(kN, kK);
  const Rows x = random_rows(kRows, kK);
  const Device<uint8_t> wc(w.codes), ws(w.scales), uc(up.codes), us(up.scales);
  const Device<uint8_t> units(cuda::dense_bytes(2 * kN, kK));
  const Device<unsigned long long> changed(std::vector<unsigned long long>{0});
  const Device<uint8_t> xc(x.codes), xs(x.scales), hidden(size_t{16} * kN), scales(size_t{16} * 4);
  const Device<uint16_t> out(size_t{16} * kN);
  must(cuda::pack_dense({wc.get(), ws.get(), nullptr, nullptr, kN, kK, units.get(), changed.get()},
                        nullptr),
       "pack");
  for (int m : {3, 16}) {
    must(cuda::dense_decode({units.get(), xc.get(), xs.get(), out.get(), m, kN, kK}, nullptr),
         "dense");
  }
  must(cuda::pack_dense(
           {wc.get(), ws.get(), uc.get(), us.get(), 2 * kN, kK, units.get(), changed.get()},
           nullptr),
       "pack pair");
  cuda::DensePairDecode pair;
  pair.product = {units.get(), xc.get(), xs.get(), nullptr, 3, 2 * kN, kK};
  pair.codes = hidden.get();
  pair.scales = scales.get();
  pair.limit = 10.F;
  must(cuda::dense_pair_decode(pair, nullptr), "pair");
  must(cudaDeviceSynchronize(), "dense kernels");
  const ExpertSet experts(256, 256);
  const Rows rows = random_rows(kRows, 256);
  std::vector<int> ids;
  for (int i = 0; i < kRows * kTop; ++i) ids.push_back((i % kTop + i / kTop) % kExperts);
  const std::vector<float> weights(ids.size(), 0.25F);
  const Device<uint16_t> shared(std::vector<uint16_t>(size_t{kRows} * 256, 0x3F80));
  run_experts(experts, {rows, ids, weights}, shared, 2);
  std::printf("each kernel ran once\n");
}

int run(bool small) {
  if (small) {
    check_dense(128, 2304);
    check_dense(192, 1280);
    check_pair(64, 1280);
    check_experts(256, 384);
  } else {
    check_dense(1792, 5120);
    check_dense(32768, 1280);
    check_dense(5120, 8192);
    check_dense(4608, 5120);
    check_dense(5120, 2304);
    check_dense(25600, 6144);
    check_pair(2304, 5120);
    check_experts(5120, 2304);
  }
  std::printf(failures == 0 ? "all checks passed\n" : "%d checks FAILED\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace fathom::device

// All checks; `small`: at small shapes; `once`: no check, every kernel once.
int main(int argc, char** argv) {
  const char mode = argc > 1 ? argv[1][0] : ' ';
  if (mode != 'o') return fathom::device::run(mode == 's');
  fathom::device::launch_each_once();
  return 0;
}
