// Goal: every path gives the bits of the summation tree, for every format, shape and number of
// rows. Method: the scalar path against the tree written down again, the vector paths against the
// scalar one, on random and hostile data; outputs are poisoned first.
#include "ops/cpu/dot.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "ops/cpu/matrix_testing.h"

namespace fathom::cpu {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kBf16, WeightFormat::kF32,
                                     WeightFormat::kFp8Block32, WeightFormat::kFp4Row32};

std::vector<CpuPath> vector_paths() {
  std::vector<CpuPath> paths;
  for (const CpuPath path : {CpuPath::kAvx2, CpuPath::kAvx512}) {
    if (resolve_path(path) == path) paths.push_back(path);
  }
  return paths;
}

std::vector<uint32_t> bits(const std::vector<float>& values) {
  std::vector<uint32_t> result;
  for (const float v : values) {
    result.push_back(std::isnan(v) ? 0x7fc00000u : std::bit_cast<uint32_t>(v));
  }
  return result;
}

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

std::vector<float> run(CpuPath path, const Weight& w, const std::vector<float>& x, int64_t n_rows,
                       Range o) {
  const int64_t n = o.end - o.begin;
  std::vector<float> out(static_cast<size_t>(n_rows * (n + 3)), -12345.0f);
  MatmulArgs m;
  m.out = out.data();
  m.out_stride = n + 3;
  m.x = x.data();
  m.n_rows = n_rows;
  m.w = &w;
  m.o_begin = o.begin;
  m.o_end = o.end;
  matmul(path, m);
  return out;
}

TEST(Dot, TheScalarPathIsTheTree) {
  std::mt19937_64 random(1);
  const int64_t K = 96;
  const auto a = random_values(random, K), b = random_values(random, K);
  float lane[16] = {};
  for (size_t block = 0; block < 3; ++block) {
    for (size_t j = 0; j < 16; ++j) {
      const size_t low = 32 * block + j, high = low + 16;
      lane[j] += std::fma(a[high], b[high], a[low] * b[low]);
    }
  }
  float eight[8], four[4];
  for (int j = 0; j < 8; ++j) eight[j] = lane[j] + lane[j + 8];
  for (int j = 0; j < 4; ++j) four[j] = eight[j] + eight[j + 4];
  const float sum = (four[0] + four[2]) + (four[1] + four[3]);
  EXPECT_EQ(bits({dot(CpuPath::kScalar, a.data(), b.data(), K)}), bits({sum}));
  for (const CpuPath path : vector_paths()) {
    EXPECT_EQ(bits({dot(path, a.data(), b.data(), K)}), bits({sum})) << path_name(path);
  }
}

// Every path that the machine has against the scalar one.
class VectorPath : public testing::TestWithParam<CpuPath> {
 protected:
  void SetUp() override {
    if (resolve_path(GetParam()) != GetParam()) {
      GTEST_SKIP() << "this machine has no " << path_name(GetParam());
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Paths, VectorPath, testing::Values(CpuPath::kAvx2, CpuPath::kAvx512),
                         [](const auto& info) { return path_name(info.param); });

constexpr std::pair<int64_t, int64_t> kShapes[] = {{32, 1}, {32, 40},  {64, 3},   {96, 70},
                                                   {96, 5}, {544, 33}, {1120, 2}, {1120, 40}};

TEST_P(VectorPath, EqualsTheScalarPathForEveryShape) {
  std::mt19937_64 random(2);
  for (const WeightFormat format : kFormats) {
    for (const auto& [K, O] : kShapes) {
      const OwnedWeight weight = make_weight(random, format, O, K);
      const auto x = random_values(random, 17 * K);
      for (int64_t n_rows = 1; n_rows <= 17; ++n_rows) {
        ASSERT_EQ(bits(run(GetParam(), weight.w, x, n_rows, {0, O})),
                  bits(run(CpuPath::kScalar, weight.w, x, n_rows, {0, O})))
            << format_name(format) << " K " << K << " O " << O << " rows " << n_rows;
      }
    }
  }
}

TEST_P(VectorPath, EqualsTheScalarPathForManyRowsAndRangesOfOutputs) {
  std::mt19937_64 random(3);
  for (const WeightFormat format : kFormats) {
    const int64_t K = 160, O = 75;
    const OwnedWeight weight = make_weight(random, format, O, K);
    const auto x = random_values(random, 203 * K);
    for (const int64_t n_rows : {95, 96, 97, 203}) {
      ASSERT_EQ(bits(run(GetParam(), weight.w, x, n_rows, {5, 71})),
                bits(run(CpuPath::kScalar, weight.w, x, n_rows, {5, 71})))
          << format_name(format) << " rows " << n_rows;
    }
  }
}

// Widths that do not fill a block occur for weights that meet bf16 values.
TEST_P(VectorPath, EqualsTheScalarPathForWidthsThatDoNotFillABlock) {
  std::mt19937_64 random(4);
  for (const WeightFormat format :
       {WeightFormat::kBf16, WeightFormat::kF32, WeightFormat::kFp8Block32}) {
    for (const int64_t K : {1, 31, 33, 100}) {
      const OwnedWeight weight = make_weight(random, format, 7, K);
      auto x = random_values(random, 9 * padded_width(K));
      for (int64_t r = 0; r < 9; ++r) {
        const auto row = x.begin() + r * padded_width(K);
        std::fill(row + K, row + padded_width(K), 0.0f);
      }
      ASSERT_EQ(bits(run(GetParam(), weight.w, x, 9, {0, 7})),
                bits(run(CpuPath::kScalar, weight.w, x, 9, {0, 7})))
          << format_name(format) << " K " << K;
    }
  }
}

float any_float(std::mt19937_64& random) {
  return std::bit_cast<float>(static_cast<uint32_t>(random()));
}

float stretched(std::mt19937_64& random, float v) {
  return random() % 64 == 0 ? std::ldexp(v, static_cast<int>(random() % 240) - 120) : v;
}

// Scales from 2^-127 to 2^127 and values up to infinity: subnormal operands, overflow, NaN.
TEST_P(VectorPath, EqualsTheScalarPathOnHostileNumbers) {
  std::mt19937_64 random(5);
  for (const WeightFormat format : kFormats) {
    for (int round = 0; round < 20; ++round) {
      const int64_t K = 96, O = 37;
      const OwnedWeight weight = make_weight(random, format, O, K, Scales::kExtreme);
      auto x = random_values(random, 8 * K);
      for (float& v : x) v = round % 2 == 0 ? any_float(random) : stretched(random, v);
      for (const int64_t n_rows : {1, 2, 8}) {
        ASSERT_EQ(bits(run(GetParam(), weight.w, x, n_rows, {0, O})),
                  bits(run(CpuPath::kScalar, weight.w, x, n_rows, {0, O})))
            << format_name(format) << " round " << round << " rows " << n_rows;
      }
    }
  }
}

// Every FP8 code but NaN and every FP4 code, with every scale, as the only weight of its row.
TEST_P(VectorPath, DecodesEveryCodeWithEveryScale) {
  for (const WeightFormat format : {WeightFormat::kFp8Block32, WeightFormat::kFp4Row32}) {
    std::mt19937_64 random(6);
    OwnedWeight weight = make_weight(random, format, 32, 32);
    std::vector<float> x(7 * 32, 0.0f);
    for (int64_t r = 0; r < 7; ++r) x[static_cast<size_t>(r * 32 + 5 * r)] = 1.0f;
    for (int scale = 0; scale < 255; ++scale) {
      std::fill(weight.scale.begin(), weight.scale.end(), static_cast<uint8_t>(scale));
      for (uint8_t& code : weight.data) {
        code = static_cast<uint8_t>(random());
        if (format == WeightFormat::kFp8Block32 && (code & 0x7f) == 0x7f) code ^= 1;
      }
      for (const int64_t n_rows : {1, 7}) {
        ASSERT_EQ(bits(run(GetParam(), weight.w, x, n_rows, {0, 32})),
                  bits(run(CpuPath::kScalar, weight.w, x, n_rows, {0, 32})))
            << format_name(format) << " scale " << scale;
      }
    }
  }
}

TEST_P(VectorPath, ARowsBitsDoNotDependOnItsNeighbours) {
  std::mt19937_64 random(7);
  for (const WeightFormat format : kFormats) {
    const int64_t K = 224, O = 33, n_rows = 101;
    const OwnedWeight weight = make_weight(random, format, O, K);
    const auto x = random_values(random, n_rows * K);
    const auto together = bits(run(GetParam(), weight.w, x, n_rows, {0, O}));
    for (const int64_t r : {0, 1, 50, 96, 100}) {
      const std::vector<float> row(x.begin() + r * K, x.begin() + (r + 1) * K);
      const auto alone = bits(run(GetParam(), weight.w, row, 1, {0, O}));
      const auto at = together.begin() + r * (O + 3);
      ASSERT_EQ(alone, std::vector<uint32_t>(at, at + O + 3)) << format_name(format);
    }
  }
}

TEST_P(VectorPath, RowsMayBeListedAndOutputsMayBeBf16) {
  std::mt19937_64 random(8);
  const int64_t K = 64, O = 9;
  const OwnedWeight weight = make_weight(random, WeightFormat::kFp4Row32, O, K);
  const auto x = random_values(random, 20 * K);
  const std::vector<int32_t> rows = {19, 0, 7, 7, 3, 11, 12, 4, 5};
  for (const int64_t n_rows : {1, 2, 9}) {
    std::vector<Bf16> out(static_cast<size_t>(n_rows * O), 0x7fc0);
    MatmulArgs m;
    m.out_bf16 = out.data();
    m.out_stride = O;
    m.x = x.data();
    m.x_rows = rows.data();
    m.n_rows = n_rows;
    m.w = &weight.w;
    m.o_end = O;
    matmul(GetParam(), m);
    for (int64_t r = 0; r < n_rows; ++r) {
      const float* row = x.data() + rows[static_cast<size_t>(r)] * K;
      const auto wanted =
          run(CpuPath::kScalar, weight.w, std::vector<float>(row, row + K), 1, {0, O});
      for (int64_t o = 0; o < O; ++o) {
        ASSERT_EQ(out[static_cast<size_t>(r * O + o)],
                  float_to_bf16(wanted[static_cast<size_t>(o)]));
      }
    }
  }
}

void run_on_a_small_stack(std::function<void()> body) {
  constexpr size_t kBytes = 128 << 10;
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kBytes), 0);
  const auto call = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  pthread_t thread = {};
  ASSERT_EQ(pthread_create(&thread, &attributes, call, &body), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

// `ulimit -s` is the size of every thread's stack too.
TEST_P(VectorPath, FitsASmallStack) {
  std::mt19937_64 random(9);
  const int64_t K = 4096, O = 33;
  for (const WeightFormat format : kFormats) {
    const OwnedWeight weight = make_weight(random, format, O, K);
    const auto x = random_values(random, 97 * K);
    for (const int64_t n_rows : {1, 6, 97}) {
      const auto wanted = run(GetParam(), weight.w, x, n_rows, {0, O});
      std::vector<float> found;
      run_on_a_small_stack([&] { found = run(GetParam(), weight.w, x, n_rows, {0, O}); });
      EXPECT_EQ(bits(found), bits(wanted)) << format_name(format) << " rows " << n_rows;
    }
  }
}

}  // namespace
}  // namespace fathom::cpu
