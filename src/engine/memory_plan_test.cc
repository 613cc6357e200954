// Goal: the plan counts what is allocated, and names its parts when it refuses.
#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include "model/inventory.h"
#include "model/plans.h"

namespace fathom {
namespace {

TEST(MemoryPlan, CountsTheReleasedModel) {
  const ModelConfig config = *named_plan("released");
  const RunnerOptions options = {.context = 1 << 20, .n_sequences = 2, .max_rows = 512};
  const MemoryPlan exact = *plan_memory(config, options, Numerics::kExact);
  const InventoryTotals totals = inventory_totals(expected_tensors(config));
  EXPECT_GE(exact.weights, totals.payload_bytes);
  EXPECT_LT(exact.weights, totals.payload_bytes + totals.tensors * 256);
  EXPECT_EQ(exact.packed, 0);
  EXPECT_EQ(exact.blocks, 2 * (int64_t{1} << 20) * 890);
  EXPECT_EQ(exact.workspace, Workspace::bytes(config, {.max_rows = 512, .max_logit_rows = 2}));
  // Experts are most of the weights, and their copies a sixteenth larger.
  const MemoryPlan fast = *plan_memory(config, options, Numerics::kFast);
  EXPECT_GT(fast.packed, int64_t{250} << 30);
  EXPECT_LT(fast.packed, fast.weights);
}

TEST(MemoryPlan, RefusesByName) {
  const MemoryPlan plan = {.weights = 6000000000, .packed = 3000000000, .margin = 1000000000};
  EXPECT_TRUE(check_plan(plan, 10000000000));
  const Result<void> refused = check_plan(plan, 9999999999);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(refused.error().message,
            "memory plan: wanted 10.00 GB: weights 6.00, packed copies 3.00, blocks 0.00, windows "
            "0.00, workspace 0.00, margin 1.00; found 10.00 GB of GPU memory");
}

}  // namespace
}  // namespace fathom
