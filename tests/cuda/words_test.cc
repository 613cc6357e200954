// Goal: every word over rows gives the CPU's bits on the GPU, at odd and at true sizes, in any
// batch, every time. Method: random inputs from a seed, both backends, bytes compared.
#include "side.h"

namespace fathom {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kBf16, WeightFormat::kF32,
                                     WeightFormat::kFp8Block32, WeightFormat::kFp4Row32};

TEST_F(CudaWords, RopeAtSmallAndAtLargePositions) {
  for (const int64_t half : {1, 8, 32}) {
    expect_same(1, [&](Side& side) {
      const Rows rows({{5, 0}, {7, 1023}, {3, (1 << 20) - 2}, {1, 130}});
      std::vector<float> inv_freq;
      for (int64_t j = 0; j < half; ++j) {
        inv_freq.push_back(std::pow(10000.0f, -static_cast<float>(j) / static_cast<float>(half)));
      }
      const Tensor frequencies = side.exactly(DType::kF32, {half}, inv_freq);
      const Tensor cos = side.output(DType::kF32, {16, half});
      const Tensor sin = side.output(DType::kF32, {16, half});
      side.ops().rope({cos, sin, frequencies, &rows});
      Bytes bytes;
      side.read(&bytes, cos);
      side.read(&bytes, sin);
      return bytes;
    });
  }
}

TEST_F(CudaWords, EmbedAndGatherRows) {
  for (const int64_t hidden : {32, 96, 5120}) {
    expect_same(2, [&](Side& side) {
      const Tensor table = side.values(DType::kBf16, {50, hidden});
      std::vector<int32_t> ids;
      for (int i = 0; i < 13; ++i) ids.push_back(static_cast<int32_t>(side.random()() % 50));
      const Tensor residual = side.output(DType::kBf16, {13, 4, hidden});
      side.ops().embed({residual, side.exactly(DType::kI32, {13}, ids), table});
      const std::vector<int64_t> rows = {12, 0, 5, 5};
      const Tensor some = side.output(DType::kBf16, {4, 4, hidden});
      side.ops().gather_rows({some, residual, rows});
      const Tensor odd = side.values(DType::kE8m0, {13, hidden / 32});
      const Tensor odd_rows = side.output(DType::kE8m0, {4, hidden / 32});
      side.ops().gather_rows({odd_rows, odd, rows});
      Bytes bytes;
      for (const Tensor& t : {residual, some, odd_rows}) side.read(&bytes, t);
      return bytes;
    });
  }
}

struct MhcShape {
  int64_t n_rows;
  int64_t n;
  int64_t hidden;
};

Bytes mhc(Side& side, const MhcShape& s, bool expand, bool predict, bool collapse) {
  const int64_t n_mix = (2 + s.n) * s.n;
  MhcStepArgs args;
  args.residual = side.values(DType::kBf16, {s.n_rows, s.n, s.hidden});
  if (expand) {
    args.y = side.values(DType::kBf16, {s.n_rows, s.hidden});
    args.expand.post = side.values(DType::kF32, {s.n_rows, s.n});
    args.expand.comb = side.values(DType::kF32, {s.n_rows, s.n, s.n});
  }
  if (predict) {
    args.site = {side.values(DType::kF32, {n_mix, s.n * s.hidden}, 0.1f),
                 side.values(DType::kF32, {3}), side.values(DType::kF32, {n_mix})};
    args.predicted = {side.output(DType::kF32, {s.n_rows, s.n}),
                      side.output(DType::kF32, {s.n_rows, s.n}),
                      side.output(DType::kF32, {s.n_rows, s.n, s.n})};
  }
  if (collapse) {
    args.pre = side.values(DType::kF32, {s.n_rows, s.n});
    args.norm = side.values(DType::kBf16, {s.hidden});
    args.x = side.activation(s.n_rows, s.hidden);
  }
  side.ops().mhc_step(args);
  Bytes bytes;
  side.read(&bytes, args.residual);
  if (predict) {
    for (const Tensor& t : {args.predicted.pre, args.predicted.post, args.predicted.comb}) {
      side.read(&bytes, t);
    }
  }
  if (collapse) side.read(&bytes, args.x);
  return bytes;
}

TEST_F(CudaWords, MhcStepWithAnyOfItsSteps) {
  for (const MhcShape& shape : {MhcShape{19, 2, 96}, MhcShape{7, 3, 64}, MhcShape{33, 4, 160},
                                MhcShape{3, 5, 32}, MhcShape{5, 4, 5120}}) {
    for (int steps = 1; steps < 8; ++steps) {
      SCOPED_TRACE(steps);
      expect_same(3, [&](Side& side) {
        return mhc(side, shape, (steps & 1) != 0, (steps & 2) != 0, (steps & 4) != 0);
      });
    }
  }
}

TEST_F(CudaWords, RmsNorm) {
  for (const int64_t width : {32, 160, 1280, 5120}) {
    expect_same(4, [&](Side& side) {
      Bytes bytes;
      side.read(&bytes, side.normed(21, width));
      return bytes;
    });
  }
}

struct LinearShape {
  int64_t n_rows;
  int64_t out;
  int64_t in;
};

Bytes linear(Side& side, const LinearShape& s, WeightFormat format) {
  const Activation x = side.normed(s.n_rows, s.in);
  const Weight w = side.weight(format, s.out, s.in);
  const Tensor rounded = side.output(DType::kBf16, {s.n_rows, s.out});
  const Tensor wide = side.output(DType::kF32, {s.n_rows, s.out});
  side.ops().linear({rounded, x, w});
  side.ops().linear({wide, x, w});
  Bytes bytes;
  side.read(&bytes, rounded);
  side.read(&bytes, wide);
  return bytes;
}

TEST_F(CudaWords, LinearOfEveryForm) {
  for (const WeightFormat format : kFormats) {
    for (const LinearShape& shape :
         {LinearShape{1, 1, 32}, LinearShape{3, 33, 96}, LinearShape{5, 70, 544},
          LinearShape{8, 64, 1024}, LinearShape{33, 129, 1056}, LinearShape{2, 1792, 5120}}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(format) << " rows " << shape.n_rows
                                      << " out " << shape.out << " in " << shape.in);
      expect_same(5, [&](Side& side) { return linear(side, shape, format); });
    }
  }
}

TEST_F(CudaWords, GroupedLinear) {
  struct Shape {
    int64_t n_rows, groups, out, in;
    WeightFormat format;
  };
  for (const Shape& s :
       {Shape{3, 2, 64, 96, WeightFormat::kFp8Block32}, Shape{17, 4, 64, 160, WeightFormat::kBf16},
        Shape{5, 8, 8192, 4096, WeightFormat::kFp8Block32}}) {
    expect_same(6, [&](Side& side) {
      const Activation out = side.activation(s.n_rows, s.out);
      side.ops().grouped_linear({out, side.values(DType::kBf16, {s.n_rows, s.groups * s.in}),
                                 side.weight(s.format, s.out, s.in), s.groups});
      Bytes bytes;
      side.read(&bytes, out);
      return bytes;
    });
  }
}

TEST_F(CudaWords, RouteWithTiesAndImages) {
  for (const int64_t n_experts : {8, 24, 384}) {
    expect_same(7, [&](Side& side) {
      const int64_t n_rows = 29;
      const int64_t width = 160;
      const Activation x = side.normed(n_rows, width);
      const Weight gate = side.weight(WeightFormat::kBf16, n_experts, width, 0.1f);
      // Equal rows of the gate and equal biases: experts 2 and 5 tie in every row.
      std::vector<float> bias(static_cast<size_t>(n_experts), 0.25f);
      Bytes row(static_cast<size_t>(width) * 2);
      side.ops().memory().read(row.data(), gate.data.row<Bf16>(2), width * 2);
      side.ops().memory().write(gate.data.row<Bf16>(5), row.data(), width * 2);
      std::vector<uint8_t> mask;
      for (int64_t i = 0; i < n_rows; ++i) mask.push_back(i % 3 == 0);
      const Tensor ids = side.output(DType::kI32, {n_rows, 6});
      const Tensor weights = side.output(DType::kF32, {n_rows, 6});
      side.ops().route({ids, weights, x, gate, side.exactly(DType::kF32, {n_experts}, bias),
                        side.values(DType::kF32, {n_experts}),
                        side.exactly(DType::kU8, {n_rows}, mask), 1.5f});
      Bytes bytes;
      side.read(&bytes, ids);
      side.read(&bytes, weights);
      return bytes;
    });
  }
}

struct ExpertShape {
  int64_t n_rows, hidden, width, shared_width, n_experts, k;
};

// Ids are distinct in a row and cover few experts in some rows, many in others.
Bytes experts(Side& side, const ExpertShape& s, WeightFormat routed, WeightFormat shared) {
  const Activation x = side.normed(s.n_rows, s.hidden);
  std::vector<int32_t> ids;
  for (int64_t r = 0; r < s.n_rows; ++r) {
    const auto first = static_cast<int64_t>(side.random()() % static_cast<uint64_t>(s.n_experts));
    for (int64_t i = 0; i < s.k; ++i) {
      ids.push_back(static_cast<int32_t>((first + i * (1 + r % 3) * 5) % s.n_experts));
    }
  }
  std::vector<ExpertWeights> all;
  for (int64_t e = 0; e < s.n_experts; ++e) {
    all.push_back({side.weight(routed, s.width, s.hidden), side.weight(routed, s.width, s.hidden),
                   side.weight(routed, s.hidden, s.width)});
  }
  const ExpertWeights one = {side.weight(shared, s.shared_width, s.hidden),
                             side.weight(shared, s.shared_width, s.hidden),
                             side.weight(shared, s.hidden, s.shared_width)};
  const Tensor y = side.output(DType::kBf16, {s.n_rows, s.hidden});
  side.ops().experts({y, x, side.exactly(DType::kI32, {s.n_rows, s.k}, ids),
                      side.values(DType::kF32, {s.n_rows, s.k}, 0.3f), all, one, 10.0f});
  Bytes bytes;
  side.read(&bytes, y);
  return bytes;
}

TEST_F(CudaWords, ExpertsOfEveryForm) {
  for (const ExpertShape& s :
       {ExpertShape{1, 64, 32, 64, 7, 2}, ExpertShape{5, 96, 64, 32, 11, 3},
        ExpertShape{70, 64, 96, 96, 13, 4}, ExpertShape{3, 5120, 2304, 2304, 16, 6}}) {
    SCOPED_TRACE(s.n_rows);
    expect_same(8, [&](Side& side) {
      return experts(side, s, WeightFormat::kFp4Row32, WeightFormat::kFp8Block32);
    });
    if (s.hidden > 1000) continue;
    expect_same(9, [&](Side& side) {
      return experts(side, s, WeightFormat::kBf16, WeightFormat::kFp4Row32);
    });
  }
}

TEST_F(CudaWords, EngramGatherAndMix) {
  for (const int64_t D : {32, 160, 5120}) {
    expect_same(10, [&](Side& side) {
      const int64_t N = 11;
      const int64_t C = 6;
      const Tensor residual = side.values(DType::kBf16, {N, 4, D});
      std::vector<int64_t> ids;
      for (int64_t i = 0; i < N * C; ++i) ids.push_back(static_cast<int64_t>(i * 7 % 50));
      std::vector<uint8_t> dead;
      for (int64_t i = 0; i < N; ++i) dead.push_back(i % 4 == 1);
      const Activation looked_up = side.activation(N, C * 64);
      side.ops().engram_gather({looked_up, side.exactly(DType::kI64, {N, C}, ids),
                                side.values(DType::kE4m3, {50, 64}),
                                side.values(DType::kE8m0, {50, 2})});
      side.ops().engram_mix({residual, side.values(DType::kBf16, {N, 5 * D}),
                             side.values(DType::kBf16, {4, D}), side.values(DType::kBf16, {4, D}),
                             side.exactly(DType::kU8, {N}, dead)});
      Bytes bytes;
      side.read(&bytes, looked_up);
      side.read(&bytes, residual);
      return bytes;
    });
  }
}

// Rows [0, n) of 128 alone give what they give among all.
TEST_F(CudaWords, ARowDoesNotDependOnTheBatch) {
  for (const WeightFormat format : kFormats) {
    Side side(*backends_.cuda, 11);
    const Activation x = side.normed(128, 544);
    const Weight w = side.weight(format, 90, 544);
    const Tensor all = side.output(DType::kF32, {128, 90});
    side.ops().linear({all, x, w});
    Bytes wanted;
    side.read(&wanted, all);
    for (const int64_t n : {1, 8, 48, 128}) {
      for (int64_t begin = 0; begin + n <= 128; begin += n) {
        const Tensor some = side.output(DType::kF32, {n, 90});
        side.ops().linear({some, x.rows(begin, begin + n), w});
        Bytes found;
        side.read(&found, some);
        ASSERT_EQ(std::memcmp(found.data(), wanted.data() + begin * 90 * 4, found.size()), 0)
            << "batch of " << n << " from row " << begin;
      }
    }
  }
}

TEST_F(CudaWords, TwentyRunsGiveTheSameBytes) {
  const auto body = [](Side& side) {
    Bytes bytes = linear(side, {33, 129, 1056}, WeightFormat::kFp8Block32);
    for (const Bytes& more : {mhc(side, {33, 4, 160}, true, true, true),
                              experts(side, {70, 64, 96, 96, 13, 4}, WeightFormat::kFp4Row32,
                                      WeightFormat::kFp8Block32)}) {
      bytes.insert(bytes.end(), more.begin(), more.end());
    }
    return bytes;
  };
  const Bytes first = run(*backends_.cuda, 12, body);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(run(*backends_.cuda, 12, body), first) << "run " << i;
}

TEST_F(CudaWords, TooMuchMemoryIsOneClearLine) {
  const auto buffer = backends_.cuda->memory().allocate(int64_t{1} << 45, "weights");
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(buffer.error().message.starts_with("weights: wanted 35184372088832 bytes of GPU"))
      << buffer.error().message;
  EXPECT_TRUE(backends_.cuda->memory().sync());
}

}  // namespace
}  // namespace fathom
