// Goal: experts equal, weights within 1e-5. Method: golden router of 384 experts, top 6, with and
// without the image bias; exact ties by construction.
#include "ops/cpu/router.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/cpu/dot.h"
#include "ops/cpu/golden_testing.h"
#include "ops/cpu/paths_testing.h"

namespace fathom {
namespace {

TEST(Router, SqrtSoftplusEqualsTheGoldenTable) {
  const Golden golden("gate");
  const auto in = golden.floats("sqrtsoftplus_in");
  const auto out = golden.floats("sqrtsoftplus_out");
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_NEAR(cpu::sqrt_softplus(in[i]), out[i], 2e-7 * std::fmax(1.0f, out[i])) << in[i];
  }
  EXPECT_NEAR(cpu::sqrt_softplus(-5), 0.0819472249, 1e-8);
  EXPECT_EQ(cpu::sqrt_softplus(25), 5.0f);
}

TEST(Router, ChoosesTheGoldenExperts) {
  const Golden golden("gate");
  const Tensor ids = golden.tensor("ids");
  const Tensor mask = golden.tensor("image_mask");
  const auto x = golden.floats("x");
  const auto gate = golden.floats("weight");
  const auto bias = golden.floats("bias");
  const auto bias_image = golden.floats("bias_vl");
  const auto wanted_scores = golden.floats("scores");
  const auto wanted = golden.floats("weights");
  for (const CpuPath path : paths_here()) {
    for (int64_t row = 0; row < 16; ++row) {
      std::vector<float> scores(384);
      for (int64_t e = 0; e < 384; ++e) {
        const float v = cpu::dot(path, gate.data() + e * 256, x.data() + row * 256, 256);
        scores[static_cast<size_t>(e)] = cpu::sqrt_softplus(v);
        ASSERT_NEAR(scores[static_cast<size_t>(e)],
                    wanted_scores[static_cast<size_t>(row * 384 + e)], 1e-5);
      }
      const bool image = mask.as<int32_t>()[row] != 0;
      int32_t found[6];
      float weights[6];
      std::vector<float> work(384);
      cpu::route_row({found, weights, scores.data(), (image ? bias_image : bias).data(),
                      work.data(), 384, 6, 1.5f});
      for (int64_t i = 0; i < 6; ++i) {
        EXPECT_EQ(found[i], ids.row<int32_t>(row)[i]);
        EXPECT_NEAR(weights[i], wanted[static_cast<size_t>(row * 6 + i)], 1e-5);
      }
    }
  }
}

TEST(Router, GivesTiesToTheSmallerId) {
  const float scores[5] = {1, 2, 2, 1, 2};
  const float bias[5] = {1, 0, 0, 1, -1};
  int32_t ids[3];
  float weights[3];
  float work[5];
  cpu::route_row({ids, weights, scores, bias, work, 5, 3, 2.0f});
  EXPECT_EQ(ids[0], 0);
  EXPECT_EQ(ids[1], 1);
  EXPECT_EQ(ids[2], 2);
  EXPECT_EQ(weights[0], 1.0f / 5.0f * 2.0f);
}

}  // namespace
}  // namespace fathom
