// Goal: RMSNorm with eps 1e-20 on any path. Method: golden rows (zero and tiny ones among them).
#include "ops/cpu/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/cpu/golden_testing.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/paths_testing.h"

namespace fathom {
namespace {

TEST(RmsNorm, EqualsTheGoldenRowsOnEveryPath) {
  const Golden golden("rmsnorm");
  const Tensor weight = golden.tensor("weight");
  const Tensor wanted = golden.tensor("y");
  const auto x = golden.floats("x");
  const int64_t width = wanted.dim(1);
  for (const CpuPath path : paths_here()) {
    std::vector<Bf16> y(x.size(), 0xffff);
    std::vector<float> row(static_cast<size_t>(width), NAN);
    for (int64_t r = 0; r < wanted.dim(0); ++r) {
      cpu::rms_norm_row(path, {row.data(), x.data() + r * width, weight.as<Bf16>(), width, 1e-20f});
      cpu::narrow(path, row.data(), width, y.data() + r * width);
    }
    expect_bf16_near(Tensor::dense(y.data(), DType::kBf16, {wanted.dim(0), width}), wanted, 1,
                     0.01);
  }
}

}  // namespace
}  // namespace fathom
