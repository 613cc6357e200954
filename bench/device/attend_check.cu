// Device test and times of attend_decode: against double precision with the rounding points of
// spec/backbone.md 3.8, batch invariance, repeated launches.

#include <cmath>
#include <cstring>
#include <string>

#include "device.cuh"
#include "ops/cuda/attend_decode.h"
#include "ops/cuda/numbers.cuh"

namespace fathom::device {
namespace {

using Bytes = std::vector<uint8_t>;
constexpr int kHeads = 64;
constexpr int kWidth = 512;
int failures = 0;
uint64_t seed = 3;
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
float bf16_rounded(double value) {
  return __bfloat162float(__float2bfloat16_rn(static_cast<float>(value)));
}
uint16_t bf16_bits(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
float bf16_value(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, 4);
  return value;
}

// Rows of one sequence each, as kernels see them.
struct Rows {
  std::vector<int64_t> position, sequence;
  std::vector<cuda::SequenceEntry> entries;
  void add(int64_t at) {
    const auto r = static_cast<int64_t>(position.size());
    position.push_back(at);
    sequence.push_back(r);
    entries.push_back({1, at, 0, at, r});
  }
};

// A step of `rows` sequences of one row each: blocks of 64 entries shuffled over the pool.
struct Step {
  static constexpr int kBlockRows = 64;
  static constexpr int kBlockBytes = kBlockRows * 288;
  static constexpr int kRingBytes = 128 * 528;
  int rows;
  int entries;  // of a sequence
  int stride;
  Bytes ring, pool, step_codes, step_scales;
  std::vector<uint32_t> ring_ids, block_ids;
  Rows row;
  std::vector<int> topk;
  std::vector<uint16_t> q;
  std::vector<float> sink, cos, sin;

  Step(int rows_, int entries_) : rows(rows_), entries(entries_), stride((entries + 63) / 64) {
    fill_cache();
    for (int r = 0; r < rows; ++r) {
      // Contexts from one token to beyond the window, the last row of it in this step.
      const int position = r % 4 == 0 ? r / 4 * 37 : 200 + 1000 * r;
      row.add(position);
      const int count = r % 5 == 3 ? 0 : std::min(512, r % 5 == 1 ? 77 : entries);
      const int first = static_cast<int>(uniform() * (entries - count + 1));
      for (int i = 0; i < 512; ++i) topk.push_back(i < count ? first + i : -1);
      for (int i = 0; i < 32; ++i) {
        const double angle = position * std::pow(160000., -i / 32.);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    for (int i = 0; i < rows * kHeads * kWidth; ++i)
      q.push_back(bf16_bits(static_cast<float>(normal())));
    for (int h = 0; h < kHeads; ++h) sink.push_back(static_cast<float>(normal()));
  }
  void fill_cache() {
    ring.resize(static_cast<size_t>(rows) * kRingBytes);
    pool.resize(static_cast<size_t>(rows) * stride * kBlockBytes);
    step_codes.resize(static_cast<size_t>(rows) * kWidth);
    step_scales.resize(static_cast<size_t>(rows) * 16);
    for (uint8_t& b : ring) b = static_cast<uint8_t>(mixed(seed++) & 0xF7);
    for (uint8_t& b : pool) b = static_cast<uint8_t>(mixed(seed++));
    for (uint8_t& b : step_codes) b = static_cast<uint8_t>(mixed(seed++) & 0xF7);
    auto e8m0 = [](uint8_t& b) { b = static_cast<uint8_t>(117 + mixed(seed++) % 4); };
    for (uint8_t& b : step_scales) e8m0(b);
    for (int r = 0; r < rows; ++r) {
      for (int i = 128 * 512; i < kRingBytes; ++i)
        e8m0(ring[static_cast<size_t>(r) * kRingBytes + i]);
      ring_ids.push_back(static_cast<uint32_t>((r * 7 + 3) % rows));
    }
    for (size_t b = 0; b < pool.size() / kBlockBytes; ++b) {
      for (int i = kBlockRows * 256; i < kBlockBytes; ++i) {
        pool[b * kBlockBytes + i] = static_cast<uint8_t>(0x20 + mixed(seed++) % 24);
      }
      block_ids.push_back(static_cast<uint32_t>(b));
    }
    for (size_t b = block_ids.size(); b > 1; --b)
      std::swap(block_ids[b - 1], block_ids[mixed(seed++) % b]);
  }
  // Channel c of list slot `slot` of row r; false for a hole.
  bool value(int r, int slot, int c, double* out) const {
    if (slot < 128) {
      const auto last = static_cast<int>(row.position[r]);
      const int position = std::max(0, last - 127) + slot;
      if (position > last) return false;
      if (position == last) {
        *out = e4m3_value(step_codes[r * kWidth + c]) *
               std::ldexp(1., step_scales[r * 16 + c / 32] - 127);
        return true;
      }
      const uint8_t* base = &ring[static_cast<size_t>(ring_ids[r]) * kRingBytes];
      *out = e4m3_value(base[position % 128 * 512 + c]) *
             std::ldexp(1., base[128 * 512 + position % 128 * 16 + c / 32] - 127);
      return true;
    }
    const int id = topk[r * 512 + slot - 128];
    if (id < 0) return false;
    constexpr double kValues[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const uint8_t* block =
        &pool[static_cast<size_t>(block_ids[r * stride + id / 64]) * kBlockBytes];
    const int code = block[id % 64 * 256 + c / 2] >> (4 * (c & 1)) & 15;
    const double v = kValues[code & 7] * e4m3_value(block[64 * 256 + id % 64 * 32 + c / 16]);
    *out = code & 8 ? -v : v;
    return true;
  }
};

struct OnDevice {
  Device<uint8_t> ring, pool, step_codes, step_scales;
  Device<uint32_t> ring_ids, block_ids;
  Device<int64_t> position, sequence;
  Device<cuda::SequenceEntry> sequences;
  Device<int> topk;
  Device<uint16_t> q, out;
  Device<float> sink, cos, sin;
  explicit OnDevice(const Step& s)
      : ring(s.ring),
        pool(s.pool),
        step_codes(s.step_codes),
        step_scales(s.step_scales),
        ring_ids(s.ring_ids),
        block_ids(s.block_ids),
        position(s.row.position),
        sequence(s.row.sequence),
        sequences(s.row.entries),
        topk(s.topk),
        q(s.q),
        out(s.q.size()),
        sink(s.sink),
        cos(s.cos),
        sin(s.sin) {}
  cuda::AttendDecode args(const Step& s, int rows) const {
    cuda::AttendDecode a;
    a.q = q.get();
    a.out = out.get();
    a.sink = sink.get();
    a.cos = cos.get();
    a.sin = sin.get();
    a.rows.position = position.get();
    a.rows.sequence = sequence.get();
    a.rows.sequences = sequences.get();
    a.n_rows = rows;
    a.ring = ring.get();
    a.ring_ids = ring_ids.get();
    a.ring_bytes = Step::kRingBytes;
    a.ring_scales_at = 128 * 512;
    a.step_codes = step_codes.get();
    a.step_scales = step_scales.get();
    a.pool = pool.get();
    a.block_ids = block_ids.get();
    a.block_stride = s.stride;
    a.block_rows = Step::kBlockRows;
    a.block_bytes = Step::kBlockBytes;
    a.block_scales_at = 64 * 256;
    a.topk = topk.get();
    a.topk_stride = 512;
    a.k = 512;
    return a;
  }
};

void rotate(double* head, const Step& s, int r, double sign) {
  for (int j = 0; j < 32; ++j) {
    const double c = s.cos[r * 32 + j];
    const double n = sign * s.sin[r * 32 + j];
    const double u = head[448 + 2 * j];
    const double v = head[449 + 2 * j];
    head[448 + 2 * j] = bf16_rounded(u * c - v * n);
    head[449 + 2 * j] = bf16_rounded(u * n + v * c);
  }
}

// One head of one row in double, rounded where 3.8 says.
std::vector<double> reference(const Step& s, int r, int h) {
  std::vector<double> q(kWidth), acc(kWidth, 0.);
  for (int c = 0; c < kWidth; ++c) q[c] = bf16_value(s.q[(r * kHeads + h) * kWidth + c]);
  rotate(q.data(), s, r, 1);
  double top = -1e30;
  double sum = 0;
  for (int block = 0; block < 10; ++block) {
    std::vector<std::vector<double>> rows;
    std::vector<double> scores;
    for (int slot = 64 * block; slot < 64 * block + 64; ++slot) {
      std::vector<double> v(kWidth);
      bool there = true;
      double dot = 0;
      for (int c = 0; c < kWidth && there; ++c) {
        there = s.value(r, slot, c, &v[c]);
        dot += v[c] * q[c];
      }
      if (!there) continue;
      rows.push_back(v);
      scores.push_back(dot / std::sqrt(512.));
    }
    if (rows.empty()) continue;
    const double now = std::max(top, *std::max_element(scores.begin(), scores.end()));
    const double factor = std::exp(top - now);
    top = now;
    sum *= factor;
    for (double& v : acc) v *= factor;
    for (size_t i = 0; i < rows.size(); ++i) {
      const double p = std::exp(scores[i] - now);
      sum += p;
      for (int c = 0; c < kWidth; ++c) acc[c] += bf16_rounded(p) * rows[i][c];
    }
  }
  sum += std::exp(s.sink[h] - top);
  for (double& v : acc) v = bf16_rounded(v / sum);
  rotate(acc.data(), s, r, -1);
  return acc;
}

void check() {
  const Step s(32, 4000);
  OnDevice d(s);
  auto run = [&](int rows) {
    d.out.poison();
    must(cuda::attend_decode(d.args(s, rows), nullptr), "attend_decode");
    must(cudaDeviceSynchronize(), "attend_decode run");
    return d.out.host();
  };
  const std::vector<uint16_t> all = run(32);
  double worst = 0;
  for (int r = 0; r < 32; ++r) {
    double squared = 0;
    double size = 0;
    for (int h = r % 3; h < kHeads; h += 13) {
      const std::vector<double> want = reference(s, r, h);
      for (int c = 0; c < kWidth; ++c) {
        const double got = bf16_value(all[(r * kHeads + h) * kWidth + c]);
        squared += (got - want[c]) * (got - want[c]);
        size += want[c] * want[c];
      }
    }
    const double relative = std::sqrt(squared / size);
    if (!(relative < 5e-3))
      std::printf("row %d (position %d): relative L2 %.2e\n", r,
                  static_cast<int>(s.row.position[r]), relative);
    worst = std::isfinite(relative) ? std::max(worst, relative) : 1e9;
  }
  bool invariant = true;
  for (int rows : {1, 8, 17}) {
    invariant = invariant &&
                std::memcmp(all.data(), run(rows).data(), size_t{2} * rows * kHeads * kWidth) == 0;
  }
  bool repeatable = true;
  for (int i = 0; i < 20; ++i) repeatable = repeatable && run(32) == all;
  // A list without entries gives the same as the window alone.
  bool narrow_same = true;
  for (int rows : {1, 17, 32}) {
    cuda::AttendDecode a = d.args(s, rows);
    a.topk = nullptr;
    a.k = 0;
    std::vector<uint16_t> found[2];
    for (const bool narrow : {false, true}) {
      a.narrow = narrow;
      d.out.poison();
      must(cuda::attend_decode(a, nullptr), "attend_decode of the window");
      must(cudaDeviceSynchronize(), "attend_decode of the window, run");
      found[narrow] = d.out.host();
    }
    narrow_same = narrow_same && found[0] == found[1];
  }
  std::printf("attend: the window alone gives the same bits: %d\n", narrow_same);
  failures += !narrow_same;
  std::printf("attend: worst relative L2 of 32 rows %.2e, invariant %d, repeatable %d\n", worst,
              invariant, repeatable);
  failures += !(worst < 5e-3) + !invariant + !repeatable;
}

void launch_once() {
  const Step s(2, 700);
  OnDevice d(s);
  must(cuda::attend_decode(d.args(s, 2), nullptr), "attend_decode");
  must(cudaDeviceSynchronize(), "attend_decode run");
  std::printf("the kernel ran once\n");
}

void bench() {
  const Step s(128, 16384);
  OnDevice d(s);
  // Scattered entries, other ones for each row; the pool of 128 sequences is 604 MB.
  std::vector<int> topk;
  Rows row;
  for (int r = 0; r < 128; ++r) {
    row.add(20000);
    for (int i = 0; i < 512; ++i) topk.push_back(32 * i + static_cast<int>(mixed(seed++) % 32));
  }
  d.topk.put(topk);
  d.position.put(row.position);
  d.sequences.put(row.entries);
  for (int rows : {1, 2, 4, 8, 16, 32, 64, 128}) {
    const double us = graph_time(64, [&](int i, cudaStream_t stream) {
      cuda::AttendDecode a = d.args(s, rows);
      const int first = i * 16 % 128 % (128 - rows + 1);
      a.rows.position += first;
      a.rows.sequence += first;
      a.topk += first * 512;
      a.q += static_cast<size_t>(first) * kHeads * kWidth;
      a.out += static_cast<size_t>(first) * kHeads * kWidth;
      must(cuda::attend_decode(a, stream), "attend_decode");
    });
    const double bytes = rows * (512. * 288 + 128 * 528 + 4. * kHeads * kWidth);
    const double floor = std::max(bytes / 4.3e12, rows * 83.9e6 / 0.79e15) * 1e6;
    std::printf("attend_decode,640 slots,%d,%.2f,%.3f,%.2f,%.3f\n", rows, us, bytes / us * 1e-6,
                floor, floor / us);
    for (const bool narrow : {false, true}) {
      const double window = graph_time(16, [&](int, cudaStream_t stream) {
        cuda::AttendDecode a = d.args(s, rows);
        a.topk = nullptr;
        a.k = 0;
        a.narrow = narrow;
        must(cuda::attend_decode(a, stream), "attend_decode");
      });
      std::printf("attend_decode,window %s,%d,%.2f\n", narrow ? "alone" : "in 640 slots", rows,
                  window);
    }
  }
}

}  // namespace
}  // namespace fathom::device

// Checks; `bench`: times too; `once`: no check, the kernel once.
int main(int argc, char** argv) {
  if (argc > 1 && (argv[1][0] == 'o' || argv[1][0] == 's')) {
    fathom::device::launch_once();
    return 0;
  }
  fathom::device::check();
  if (argc > 1) fathom::device::bench();
  return fathom::device::failures == 0 ? 0 : 1;
}
