#include "ops/cpu/machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>

#include "base/check.h"

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/machine.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

HWY_BEFORE_NAMESPACE();
namespace fathom::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The xor of all words: nothing but loads matters. bytes: a multiple of 1024.
uint64_t read_all(const uint8_t* p, int64_t bytes) {
  const hn::ScalableTag<uint64_t> d;
  constexpr int64_t kStep = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<uint8_t>()));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (int64_t i = 0; i < bytes; i += 4 * kStep) {
    const auto load = [&](int64_t at) HWY_ATTR {
      return hn::LoadU(d, reinterpret_cast<const uint64_t*>(p + i + at * kStep));
    };
    a = hn::Xor(a, load(0));
    b = hn::Xor(b, load(1));
    c = hn::Xor(c, load(2));
    e = hn::Xor(e, load(3));
  }
  alignas(64) uint64_t lanes[hn::MaxLanes(hn::ScalableTag<uint64_t>())];
  hn::Store(hn::Xor(hn::Xor(a, b), hn::Xor(c, e)), d, lanes);
  uint64_t all = 0;
  for (const uint64_t lane : lanes) all ^= lane;
  return all;
}

// steps x 12 vectors of fused multiply-adds; returns their number.
int64_t fma_loop(int64_t steps, float* sink) {
  const hn::ScalableTag<float> f;
  const auto x = hn::Set(f, *sink);
  hn::Vec<hn::ScalableTag<float>> acc[12];
  for (int i = 0; i < 12; ++i) acc[i] = hn::Set(f, static_cast<float>(i));
  for (int64_t s = 0; s < steps; ++s) {
    HWY_UNROLL(12)
    for (int i = 0; i < 12; ++i) acc[i] = hn::MulAdd(acc[i], x, x);
  }
  auto sum = acc[0];
  for (int i = 1; i < 12; ++i) sum = hn::Add(sum, acc[i]);
  *sink = hn::GetLane(hn::SumOfLanes(f, sum));
  return steps * 12 * static_cast<int64_t>(hn::MaxLanes(f));
}

}  // namespace HWY_NAMESPACE
}  // namespace fathom::cpu
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace fathom::cpu {
namespace {

constexpr int64_t kMiB = 1 << 20;

uint64_t read_all(CpuPath path, const uint8_t* p, int64_t bytes) {
#if HWY_TARGETS & HWY_AVX3
  if (path == CpuPath::kAvx512) return N_AVX3::read_all(p, bytes);
#endif
#if HWY_TARGETS & HWY_AVX2
  if (path == CpuPath::kAvx2) return N_AVX2::read_all(p, bytes);
#endif
  uint64_t sum = 0;
  const auto* words = reinterpret_cast<const uint64_t*>(p);
  for (int64_t i = 0; i < bytes / 8; ++i) sum ^= words[i];
  return sum;
}

int64_t fma_loop(CpuPath path, int64_t steps, float* sink) {
#if HWY_TARGETS & HWY_AVX3
  if (path == CpuPath::kAvx512) return N_AVX3::fma_loop(steps, sink);
#endif
#if HWY_TARGETS & HWY_AVX2
  if (path == CpuPath::kAvx2) return N_AVX2::fma_loop(steps, sink);
#endif
  float acc[4] = {1, 2, 3, 4};
  for (int64_t s = 0; s < steps; ++s) {
    for (float& a : acc) a = std::fma(a, *sink, *sink);
  }
  *sink = acc[0] + acc[1] + acc[2] + acc[3];
  return 4 * steps;
}

template <typename Body>
double seconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

ReadBandwidth::ReadBandwidth(int64_t bytes) : buffer_(bytes / kMiB * kMiB) {
  FATHOM_CHECK(buffer_.bytes() > 0);
  uint64_t state = 1;
  for (int64_t i = 0; i < buffer_.bytes(); i += 64) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::fill_n(buffer_.data() + i, 64, static_cast<std::byte>(state >> 56));
  }
}

double ReadBandwidth::bytes_per_s(ThreadPool& pool, CpuPath path, int rounds) const {
  double best = 0;
  const auto* data = reinterpret_cast<const uint8_t*>(buffer_.data());
  std::atomic<uint64_t> sum = 0;
  for (int round = 0; round < rounds; ++round) {
    const double s = seconds([&] {
      pool.parallel_for(buffer_.bytes() / kMiB, 1, [&](int64_t begin, int64_t end) {
        sum += read_all(path, data + begin * kMiB, (end - begin) * kMiB);
      });
    });
    best = std::max(best, static_cast<double>(buffer_.bytes()) / s);
  }
  FATHOM_CHECK(sum != 1);  // keeps the reads
  return best;
}

double fma_peak_per_s(ThreadPool& pool, CpuPath path, int rounds) {
  constexpr int64_t kSteps = 200'000;
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    std::atomic<int64_t> done = 0;
    std::atomic<int> n_finite = 0;
    const double s = seconds([&] {
      pool.parallel_for(16 * pool.n_threads(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          float sink = 0.25f;
          done += fma_loop(path, kSteps, &sink);
          n_finite += std::isfinite(sink) ? 1 : 0;
        }
      });
    });
    FATHOM_CHECK(n_finite == 16 * pool.n_threads());  // keeps the sums
    best = std::max(best, static_cast<double>(done) / s);
  }
  return best;
}

}  // namespace fathom::cpu
#endif
