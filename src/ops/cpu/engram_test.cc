// Goal: gates within 1e-5, an all-zero stream included. Method: golden gate at width 256.
#include "ops/cpu/engram.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/cpu/golden_testing.h"
#include "ops/cpu/paths_testing.h"

namespace fathom {
namespace {

TEST(Engram, GatesEqualTheGoldenOnesOnEveryPath) {
  const Golden golden("engram");
  const auto h = golden.floats("gate.h");
  const auto key = golden.floats("gate.key");
  const Tensor q = golden.tensor("gate.q_weight");
  const Tensor k = golden.tensor("gate.k_weight");
  const auto wanted = golden.floats("gate.sigmoid");
  std::vector<float> work(256, NAN);
  for (const CpuPath path : paths_here()) {
    for (int64_t i = 0; i < 16; ++i) {
      const float gate =
          cpu::engram_gate_row(path, {h.data() + i * 256, key.data() + i * 256, q.row<Bf16>(i % 4),
                                      k.row<Bf16>(i % 4), work.data(), 256, 1e-20f});
      EXPECT_NEAR(gate, wanted[static_cast<size_t>(i)], 1e-5) << i;
    }
  }
}

}  // namespace
}  // namespace fathom
