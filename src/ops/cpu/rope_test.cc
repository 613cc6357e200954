// Goal: rotation of interleaved pairs, forward and back. Method: golden vectors, and channels below
// the rotated tail stay as they are.
#include "ops/cpu/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/math.h"
#include "ops/cpu/golden_testing.h"
#include "ops/cpu/lanes.h"

namespace fathom {
namespace {

void expect_rotation(const Golden& golden, const std::string& kind, bool inverse) {
  const Tensor positions = golden.tensor("positions");
  const auto frequency = golden.floats(kind + ".inv_freq");
  const auto input = golden.floats("input");
  const Tensor wanted = golden.tensor(kind + (inverse ? ".inverse" : ".forward"));
  std::vector<Bf16> found(input.size());
  for (size_t row = 0; row < input.size() / 64; ++row) {
    float cos[32];
    float sin[32];
    cpu::rotation_at(positions.as<int32_t>()[row / 3], frequency.data(), 32, cos, sin);
    std::vector<float> x(80, 3.0f);
    std::copy_n(input.data() + row * 64, 64, x.data() + 16);
    cpu::rotate_tail(x.data(), 80, {cos, sin, 32}, inverse ? -1.0f : 1.0f);
    for (size_t i = 0; i < 16; ++i) EXPECT_EQ(x[i], 3.0f);
    cpu::narrow(CpuPath::kScalar, x.data() + 16, 64, found.data() + row * 64);
  }
  expect_bf16_near(Tensor::dense(found.data(), DType::kBf16, {21, 64}), wanted.reshaped({21, 64}),
                   1, 0.01);
}

TEST(Rope, RotatesTheGoldenVectorsForwardAndBack) {
  const Golden golden("rope");
  for (const char* kind : {"plain", "yarn"}) {
    expect_rotation(golden, kind, false);
    expect_rotation(golden, kind, true);
  }
}

}  // namespace
}  // namespace fathom
