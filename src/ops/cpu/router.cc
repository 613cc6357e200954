#include "ops/cpu/router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/math.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/dot.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/probing.h"
#include "ops/cpu/scratch.h"

namespace fathom {
namespace cpu {

float sqrt_softplus(float v) { return std::sqrt(v > 20.0f ? v : log1p_f32(exp_f32(v))); }

void route_row(const RouteRow& a) {
  for (int64_t e = 0; e < a.n_experts; ++e) a.biased[e] = a.scores[e] + a.bias[e];
  float sum = 0;
  for (int64_t i = 0; i < a.k; ++i) {
    const int64_t best = std::max_element(a.biased, a.biased + a.n_experts) - a.biased;
    a.ids[i] = static_cast<int32_t>(best);
    a.weights[i] = a.scores[best];
    sum += a.scores[best];
    a.biased[best] = -std::numeric_limits<float>::infinity();
  }
  for (int64_t i = 0; i < a.k; ++i) a.weights[i] = a.weights[i] / (sum + 1e-20f) * a.scale;
}

namespace {

constexpr int64_t kTile = 16;  // rows that share one walk over the gate's weight

// Scores of rows [begin, end) into out, one row after the other.
void score_rows(CpuPath path, const RouteArgs& args, int64_t begin, int64_t end, float* out) {
  struct X;
  const int64_t n_experts = args.gate.out();
  float* x = scratch<X>(kTile * padded_width(args.x.width()));
  for (int64_t row = begin; row < end; row += kTile, out += kTile * n_experts) {
    const int64_t n = std::min(kTile, end - row);
    expand_rows(args.x, args.gate.format, row, row + n, x);
    matmul(path, {.out = out,
                  .out_stride = n_experts,
                  .x = x,
                  .n_rows = n,
                  .w = &args.gate,
                  .o_begin = 0,
                  .o_end = n_experts});
    for (int64_t i = 0; i < n * n_experts; ++i) out[i] = sqrt_softplus(out[i]);
  }
}

void choose_rows(const RouteArgs& args, int64_t begin, int64_t end, const float* scores) {
  struct Biased;
  const int64_t n_experts = args.gate.out();
  float* biased = scratch<Biased>(n_experts);
  for (int64_t row = begin; row < end; ++row, scores += n_experts) {
    const bool image = !args.image_mask.empty() && args.image_mask.as<uint8_t>()[row] != 0;
    route_row({args.ids.row<int32_t>(row), args.weights.row<float>(row), scores,
               (image ? args.bias_image : args.bias).as<float>(), biased, n_experts,
               args.ids.dim(1), args.scale});
  }
}

}  // namespace
}  // namespace cpu

void CpuOps::do_route(const RouteArgs& args) {
  const int64_t n_rows = args.x.n_rows();
  const int64_t n_experts = args.gate.out();
  if (probing()) {
    const Buffer buffer(n_rows * n_experts * dtype_bytes(DType::kF32));
    float* scores = reinterpret_cast<float*>(buffer.data());
    cpu::score_rows(path_, args, 0, n_rows, scores);
    cpu::show_f32(*this, "moe.scores", scores, {n_rows, n_experts});
    cpu::choose_rows(args, 0, n_rows, scores);
    show("moe.ids", args.ids);
    show("moe.weights", args.weights);
    return;
  }
  const int64_t grain = cpu::row_grain(n_experts * args.x.width() / 4);
  pool_.parallel_for(n_rows, grain, [&](int64_t begin, int64_t end) {
    struct Scores;
    float* scores = cpu::scratch<Scores>((end - begin) * n_experts);
    cpu::score_rows(path_, args, begin, end, scores);
    cpu::choose_rows(args, begin, end, scores);
  });
}

}  // namespace fathom
