#include <algorithm>
#include <limits>

#include "base/math.h"
#include "base/math_inline.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/dot.h"
#include "ops/cpu/lanes.h"

namespace fathom::cpu {
namespace {

constexpr float kLowest = -1e30f;  // start of the running maximum, finite

// The maximum of 64 scaled scores; a maximum has no rounding, so its order is free.
[[gnu::always_inline]] inline float scale_and_max(float* scores, float scale) {
  float lanes[16];
  for (int j = 0; j < 16; ++j) lanes[j] = scores[j] = scores[j] * scale;
  for (int i = 16; i < kSlotsPerBlock; i += 16) {
    for (int j = 0; j < 16; ++j) {
      const float s = scores[i + j] = scores[i + j] * scale;
      lanes[j] = s > lanes[j] ? s : lanes[j];
    }
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) {
      lanes[j] = lanes[j + width] > lanes[j] ? lanes[j + width] : lanes[j];
    }
  }
  return lanes[0];
}

// scores become bf(exp(score - maximum)); returns the sum of the unrounded ones.
[[gnu::always_inline]] inline float exponentiate(float* scores, float maximum) {
  float lanes[16] = {};
  for (int i = 0; i < kSlotsPerBlock; i += 16) {
    for (int j = 0; j < 16; ++j) {
      const float p = exp_f32_inline(scores[i + j] - maximum);
      lanes[j] += p;
      scores[i + j] = round_to_bf16(p);
    }
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

}  // namespace

void begin_softmax(const SoftmaxState& state) {
  std::fill_n(state.acc, state.n_heads * state.width, 0.0f);
  std::fill_n(state.maximum, state.n_heads, kLowest);
  std::fill_n(state.denominator, state.n_heads, 0.0f);
}

void attend_block(CpuPath path, const SoftmaxState& state, const SoftmaxBlock& block) {
  const float empty = -std::numeric_limits<float>::infinity();
  std::fill_n(state.scores, state.n_heads * kSlotsPerBlock, empty);
  for (int i = 0; i < block.n_runs; ++i) {
    const SlotRun& run = block.runs[i];
    const Weight keys = {.data = Tensor::dense(const_cast<float*>(run.vectors), DType::kF32,
                                               {run.n_slots, state.width}),
                         .format = WeightFormat::kF32};
    matmul(path, {.out = state.scores + run.first_slot,
                  .out_stride = kSlotsPerBlock,
                  .x = block.q,
                  .n_rows = state.n_heads,
                  .w = &keys,
                  .o_begin = 0,
                  .o_end = run.n_slots});
  }
  const SoftmaxState s = state;
  const float scale = block.scale;
  on_path(
      path, [=]() __attribute__((always_inline)) {
        for (int64_t h = 0; h < s.n_heads; ++h) {
          float* scores = s.scores + h * kSlotsPerBlock;
          const float top = scale_and_max(scores, scale);
          const float before = s.maximum[h];
          const float now = top > before ? top : before;
          const float factor = exp_f32_inline(before - now);
          s.maximum[h] = now;
          s.denominator[h] = s.denominator[h] * factor + exponentiate(scores, now);
          if (factor == 1.0f) continue;
          float* acc = s.acc + h * s.width;
          for (int64_t c = 0; c < s.width; ++c) acc[c] *= factor;
        }
      });
  for (int i = 0; i < block.n_runs; ++i) {
    const SlotRun& run = block.runs[i];
    accumulate(path, {.out = state.acc,
                      .p = state.scores + run.first_slot,
                      .p_stride = kSlotsPerBlock,
                      .v = run.vectors,
                      .n_heads = state.n_heads,
                      .n_slots = run.n_slots,
                      .width = state.width});
  }
}

void finish_softmax(CpuPath path, const SoftmaxState& state, const float* sink) {
  const SoftmaxState s = state;
  on_path(
      path, [=]() __attribute__((always_inline)) {
        for (int64_t h = 0; h < s.n_heads; ++h) {
          const float total = s.denominator[h] + exp_f32_inline(sink[h] - s.maximum[h]);
          float* acc = s.acc + h * s.width;
          for (int64_t c = 0; c < s.width; ++c) acc[c] = round_to_bf16(acc[c] / total);
        }
      });
}

}  // namespace fathom::cpu
