#include <algorithm>
#include <chrono>
#include <cstdio>

#include "apps/bench.h"
#include "apps/progress.h"
#include "base/thread_pool.h"
#include "ops/ops.h"
#include "tensor/codecs.h"

namespace fathom {
namespace {

using Clock = std::chrono::steady_clock;

template <typename Body>
double best_seconds(int n_rounds, const Body& body) {
  double best = 1e30;
  for (int i = 0; i < n_rounds; ++i) {
    const auto start = Clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

// Random bits with plain exponents: no NaN, no huge values, no page alike.
class Noise {
 public:
  uint64_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return state_ >> 24;
  }
  void fill_codes(Tensor t) {
    for (int64_t i = 0; i < t.bytes(); ++i) {
      const auto code = static_cast<uint8_t>(next());
      t.as<uint8_t>()[i] = (code & 0x7f) == 0x7f ? 0 : code;
    }
  }
  void fill_scales(Tensor t) {
    for (int64_t i = 0; i < t.bytes(); ++i) {
      t.as<uint8_t>()[i] = static_cast<uint8_t>(112 + next() % 8);
    }
  }
  void fill_bf16(Tensor t) {
    for (int64_t i = 0; i < t.elements(); ++i) {
      t.as<Bf16>()[i] = static_cast<Bf16>((next() & 0x807f) | (120 + next() % 8) << 7);
    }
  }

 private:
  uint64_t state_ = 1;
};

Weight make_weight(Arena& arena, Noise& noise, WeightFormat format, int64_t out, int64_t in) {
  Weight w;
  w.format = format;
  if (format == WeightFormat::kBf16) {
    w.data = arena.make(DType::kBf16, {out, in});
    noise.fill_bf16(w.data);
    return w;
  }
  const bool fp4 = format == WeightFormat::kFp4Row32;
  w.data = fp4 ? arena.make(DType::kI8, {out, in / 2}) : arena.make(DType::kE4m3, {out, in});
  w.scale = arena.make(DType::kE8m0, {fp4 ? out : out / 32, in / 32});
  noise.fill_codes(w.data);
  noise.fill_scales(w.scale);
  return w;
}

Activation make_rows(Arena& arena, Noise& noise, int64_t n_rows, int64_t width) {
  const Activation x = Activation::make(arena, n_rows, width);
  noise.fill_bf16(x.bf16);
  noise.fill_codes(x.codes);
  noise.fill_scales(x.scales);
  return x;
}

struct Form {
  WeightFormat format;
  const char* name;
};
constexpr Form kForms[] = {{WeightFormat::kBf16, "bf16"},
                           {WeightFormat::kFp8Block32, "fp8"},
                           {WeightFormat::kFp4Row32, "fp4"}};

constexpr int64_t kIn = 5120;

std::string conditions(const MachineBounds& machine, int64_t n_rows, int64_t out) {
  char text[160];
  std::snprintf(text, sizeof text, "%lld rows, weight %lld x %lld, %s, %d threads, best of 5",
                static_cast<long long>(n_rows), static_cast<long long>(out),
                static_cast<long long>(kIn), machine.backend.c_str(), machine.n_threads);
  return text;
}

}  // namespace

void bench_cpu(const MachineBounds& machine, BenchRows& rows) {
  const std::string all = machine.backend + ", " + std::to_string(machine.n_threads) + " threads";
  const std::string one = machine.backend + ", 1 thread";
  rows.push_back({"memory_read", machine.read_bytes_per_s, "bytes_per_s", 0, all});
  rows.push_back({"memory_read", machine.read_bytes_per_s_one_thread, "bytes_per_s", 0, one});
  rows.push_back({"fma_fp32", machine.fma_per_s, "fma_per_s", 0, all});
  rows.push_back({"fma_fp32", machine.fma_per_s_one_thread, "fma_per_s", 0, one});
  ThreadPool pool(machine.n_threads);
  constexpr int kLoops = 10'000;
  const double seconds = best_seconds(5, [&] {
    for (int i = 0; i < kLoops; ++i) pool.parallel_for(64, 1, [](int64_t, int64_t) {});
  });
  rows.push_back({"parallel_loop", seconds / kLoops, "s", 0, all + ", 64 empty items"});
}

Result<void> bench_ops(const BenchOptions& options, const MachineBounds& machine, BenchRows& rows) {
  BackendOptions cpu = options.backend;
  cpu.kind = BackendKind::kCpu;
  FATHOM_ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops, make_backend(cpu));
  ProgressLine line(options.progress, "bench ops", "forms");
  int64_t n_done = 0;
  for (const Form& form : kForms) {
    line.update(n_done++, std::ssize(kForms));
    // One row: weights far larger than the caches. Many rows: as many products as a prefill has.
    const int64_t out = form.format == WeightFormat::kFp4Row32 ? 65536 : 32768;
    Arena arena{Buffer(int64_t{400} << 20)};
    Noise noise;
    const Weight w = make_weight(arena, noise, form.format, out, kIn);
    for (const int64_t n_rows : {1, 2, 4}) {
      const Activation x = make_rows(arena, noise, n_rows, kIn);
      const Tensor y = arena.make(DType::kBf16, {n_rows, out});
      const double s = best_seconds(5, [&] { ops->linear({.out = y, .x = x, .w = w}); });
      rows.push_back({std::string("linear_") + form.name, static_cast<double>(w.bytes()) / s,
                      "weight_bytes_per_s", machine.read_bytes_per_s,
                      conditions(machine, n_rows, out)});
    }
    Weight part = w;
    const int64_t part_out = 2048;
    part.data = w.data.rows(0, part_out);
    if (!w.scale.empty()) part.scale = w.scale.rows(0, w.scale.dim(0) * part_out / out);
    for (const int64_t n_rows : {16, 128, 512}) {
      const Activation x = make_rows(arena, noise, n_rows, kIn);
      const Tensor y = arena.make(DType::kBf16, {n_rows, part_out});
      const double s = best_seconds(5, [&] { ops->linear({.out = y, .x = x, .w = part}); });
      rows.push_back({std::string("linear_") + form.name,
                      static_cast<double>(n_rows * part_out * kIn) / s, "fma_per_s",
                      machine.fma_per_s, conditions(machine, n_rows, part_out)});
    }
  }
  return {};
}

}  // namespace fathom
