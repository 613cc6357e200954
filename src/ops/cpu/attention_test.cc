// Goal: attention within one bf16 step on 1e-4 of the elements, the same bits on every path.
// Method: golden lists of 138 slots with holes, walked in the same blocks of 64 slots.
#include "ops/cpu/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/cpu/golden_testing.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/paths_testing.h"

namespace fathom {
namespace {

// One row with its list as it stands; every filled slot is a run of its own.
std::vector<float> attend(CpuPath path, const Golden& golden, int64_t row) {
  const Tensor indices = golden.tensor("indices");
  const auto vectors = golden.floats("kv");
  const auto sink = golden.floats("sink");
  const auto q = golden.floats("q");
  std::vector<float> acc(64 * 512, NAN);
  std::vector<float> small(64 * (2 + cpu::kSlotsPerBlock), NAN);
  const cpu::SoftmaxState state = {.acc = acc.data(),
                                   .maximum = small.data(),
                                   .denominator = small.data() + 64,
                                   .scores = small.data() + 128,
                                   .n_heads = 64,
                                   .width = 512};
  cpu::begin_softmax(state);
  for (int64_t slot = 0; slot < indices.dim(1); slot += cpu::kSlotsPerBlock) {
    std::vector<cpu::SlotRun> runs;
    for (int64_t i = slot; i < std::min(slot + cpu::kSlotsPerBlock, indices.dim(1)); ++i) {
      const int32_t id = indices.row<int32_t>(row)[i];
      if (id >= 0) runs.push_back({i - slot, 1, vectors.data() + id * 512});
    }
    const cpu::SoftmaxBlock block = {.q = q.data() + row * 64 * 512,
                                     .runs = runs.data(),
                                     .n_runs = static_cast<int>(runs.size()),
                                     .scale = 0.04419417382415922f};
    cpu::attend_block(path, state, block);
  }
  cpu::finish_softmax(path, state, sink.data());
  return acc;
}

TEST(Attention, EqualsTheGoldenRows) {
  const Golden golden("sparse_attention");
  const Tensor wanted = golden.tensor("o");
  for (int64_t row = 0; row < wanted.dim(0); ++row) {
    std::vector<float> scalar;
    for (const CpuPath path : paths_here()) {
      const auto acc = attend(path, golden, row);
      if (scalar.empty()) scalar = acc;
      EXPECT_EQ(0, std::memcmp(scalar.data(), acc.data(), acc.size() * sizeof(float)));
      std::vector<Bf16> o(acc.size());
      cpu::narrow(path, acc.data(), static_cast<int64_t>(acc.size()), o.data());
      const Bf16Difference d = compare_bf16(o.data(), wanted.row<Bf16>(row), 64 * 512);
      EXPECT_LE(d.largest_ulp, 1);
      EXPECT_LE(d.count, 4);
    }
  }
}

TEST(Attention, AnEmptyListGivesZero) {
  for (const CpuPath path : paths_here()) {
    std::vector<float> acc(64, NAN);
    float small[2 + cpu::kSlotsPerBlock];
    const cpu::SoftmaxState state = {acc.data(), small, small + 1, small + 2, 1, 64};
    const float sink = -3.0f;
    cpu::begin_softmax(state);
    cpu::finish_softmax(path, state, &sink);
    for (const float v : acc) EXPECT_EQ(v, 0.0f);
  }
}

}  // namespace
}  // namespace fathom
