#include "engine/memory_plan.h"

#include <algorithm>
#include <cstdio>

#include "model/inventory.h"

namespace fathom {
namespace {

constexpr int64_t kMargin = int64_t{2} << 30;
constexpr int64_t kTensorAlignment = 256;

// A matrix that fast kernels may keep a copy of: FP8 a little more than itself, FP4 a sixteenth; as
// BF16 what rows meet by their values.
int64_t packed_bytes(const ExpectedTensor& t) {
  const bool matrix = t.shape.size() == 2 && !t.name.ends_with("embed.weight");
  if (!matrix) return 0;
  if (t.name.ends_with("wo_a.weight")) return 2 * t.shape[0] * t.shape[1];
  if (t.name == "head.weight") return t.bytes();
  if (t.dtype == DType::kE4m3) return t.bytes() + t.bytes() / 512;
  if (t.dtype == DType::kI8) return t.bytes() + t.bytes() / 16 + 4 * t.shape[0];
  return 0;
}

std::string gigabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", static_cast<double>(bytes) / 1e9);
  return text;
}

}  // namespace

Result<MemoryPlan> plan_memory(const ModelConfig& config, const RunnerOptions& options,
                               Numerics numerics) {
  const KvGeometry kv = kv_for_context(make_plan(config).kv, options.context);
  FATHOM_ASSIGN_OR_RETURN(const KvSpec spec, KvSpec::make(kv));
  MemoryPlan plan = {.margin = kMargin};
  for (const ExpectedTensor& t : expected_tensors(config)) {
    plan.weights += (t.bytes() + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
    if (numerics != Numerics::kExact) plan.packed += packed_bytes(t);
  }
  const int64_t whole = options.n_sequences * blocks_for(options.context);
  plan.blocks = (options.n_blocks > 0 ? options.n_blocks : whole) * spec.block_bytes();
  plan.windows = options.n_sequences * spec.session_bytes();
  plan.workspace = Workspace::bytes(
      config, {.max_rows = std::max({options.max_rows, options.n_sequences, kv.sliding_window}),
               .max_logit_rows = std::max(options.max_logit_rows, options.n_sequences),
               .context = options.context});
  return plan;
}

std::string plan_line(const MemoryPlan& plan) {
  return gigabytes(plan.total()) + " GB: weights " + gigabytes(plan.weights) + ", packed copies " +
         gigabytes(plan.packed) + ", blocks " + gigabytes(plan.blocks) + ", windows " +
         gigabytes(plan.windows) + ", workspace " + gigabytes(plan.workspace) + ", margin " +
         gigabytes(plan.margin);
}

Result<void> check_plan(const MemoryPlan& plan, int64_t available) {
  if (plan.total() <= available) return {};
  return exhausted("memory plan: wanted " + plan_line(plan) + "; found " + gigabytes(available) +
                   " GB of GPU memory");
}

}  // namespace fathom
