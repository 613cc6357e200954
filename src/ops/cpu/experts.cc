#include "ops/cpu/experts.h"

#include <algorithm>
#include <vector>

#include "base/math.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/dot.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/quantize.h"

namespace fathom {

void CpuOps::do_experts(const ExpertsArgs& args) {
  const std::function<void(const Tensor&)> show_shared = [this](const Tensor& out) {
    show("moe.shared_out", out);
  };
  cpu::experts(context(), args, probing() ? &show_shared : nullptr);
  show("moe.out", args.y);
}

namespace cpu {
namespace {

// Places in Scratch.
constexpr size_t kRowsPlace = 0;
constexpr size_t kBf16RowsPlace = 1;
constexpr size_t kHiddenPlace = 2;
constexpr size_t kSumPlace = 3;
constexpr size_t kSharedPlace = 4;

constexpr int64_t kUnit = 128;  // outputs of one task at most
constexpr int64_t kBatch = 64;  // slots of one matmul call inside a task
constexpr int64_t kBlock = 32;  // of A8

// Wide tasks spend less on bringing rows into a decoder's order; many threads want many tasks.
int64_t unit_for(int n_threads) { return n_threads <= 8 ? kUnit : kBlock; }

bool takes_a8(const Weight& w) {
  return w.format == WeightFormat::kFp8Block32 || w.format == WeightFormat::kFp4Row32;
}

// The slots [begin, end) of one expert.
struct Group {
  const ExpertWeights* weights = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  bool shared = false;
  int64_t hidden_at = 0;      // of slot `begin`, in floats
  int64_t hidden_stride = 0;  // floats a slot: the expert's width, padded
};

struct Slots {
  std::vector<Group> groups;         // those that have slots, increasing id, then the shared one
  std::vector<int32_t> row;          // [slot]
  std::vector<int64_t> units = {0};  // tasks of loop one before each group, and of all
  std::vector<float> route_weight;   // [slot]
};

Slots group_by_expert(const ExpertsArgs& args) {
  const int64_t n_rows = args.x.n_rows();
  const int64_t k = args.ids.dim(1);
  const auto n_experts = static_cast<int64_t>(args.experts.size());
  std::vector<int64_t> next(static_cast<size_t>(n_experts) + 1, 0);
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      const int32_t id = args.ids.row<const int32_t>(r)[i];
      FATHOM_CHECK(0 <= id && id < n_experts);
      ++next[static_cast<size_t>(id) + 1];
    }
  }
  Slots slots;
  for (size_t e = 0; e < args.experts.size(); ++e) {
    next[e + 1] += next[e];
    if (next[e + 1] > next[e]) {
      slots.groups.push_back({&args.experts[e], next[e], next[e + 1], false});
    }
  }
  const int64_t n_routed = n_rows * k;
  slots.groups.push_back({&args.shared, n_routed, n_routed + n_rows, true});

  slots.row.resize(static_cast<size_t>(n_routed + n_rows));
  slots.route_weight.resize(slots.row.size(), 1.0f);
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      const int32_t id = args.ids.row<const int32_t>(r)[i];
      const auto slot = static_cast<size_t>(next[static_cast<size_t>(id)]++);
      slots.row[slot] = static_cast<int32_t>(r);
      slots.route_weight[slot] = args.weights.row<const float>(r)[i];
    }
    slots.row[static_cast<size_t>(n_routed + r)] = static_cast<int32_t>(r);
  }
  return slots;
}

// What a task of loop one needs.
struct Step {
  const Context* context = nullptr;
  const ExpertsArgs* args = nullptr;
  const Slots* slots = nullptr;
  int64_t unit = kBlock;          // outputs of one task
  const float* x_a8 = nullptr;    // [N, D]
  const float* x_bf16 = nullptr;  // [N, D]
  float* hidden = nullptr;        // Group::hidden_at
};

float* hidden_row(const Step& step, const Group& group, int64_t slot) {
  return step.hidden + group.hidden_at + (slot - group.begin) * group.hidden_stride;
}

// Columns [o_begin, o_end) of w2's input for all slots of a group.
void make_hidden(const Step& step, const Group& group, int64_t o_begin, int64_t o_end) {
  Bf16 gate[kBatch * kUnit];
  Bf16 up[kBatch * kUnit];
  const Weight& w1 = group.weights->w1;
  const Weight& w3 = group.weights->w3;
  const int64_t width = o_end - o_begin;
  const bool quantised = takes_a8(group.weights->w2);
  for (int64_t begin = group.begin; begin < group.end; begin += kBatch) {
    const int64_t n = std::min(kBatch, group.end - begin);
    MatmulArgs m;
    m.out_stride = kUnit;
    m.x_rows = step.slots->row.data() + begin;
    m.n_rows = n;
    m.o_begin = o_begin;
    m.o_end = o_end;
    m.w = &w1;
    m.out_bf16 = gate;
    m.x = takes_a8(w1) ? step.x_a8 : step.x_bf16;
    matmul(step.context->path, m);
    m.w = &w3;
    m.out_bf16 = up;
    m.x = takes_a8(w3) ? step.x_a8 : step.x_bf16;
    matmul(step.context->path, m);

    for (int64_t i = 0; i < n; ++i) {
      float* hidden = hidden_row(step, group, begin + i) + o_begin;
      float up_row[kUnit];
      for (int64_t j = 0; j < width; ++j) {
        hidden[j] = bf16_to_float(gate[i * kUnit + j]);
        up_row[j] = bf16_to_float(up[i * kUnit + j]);
      }
      const float weight = step.slots->route_weight[static_cast<size_t>(begin + i)];
      swiglu(hidden, up_row, width, step.args->swiglu_limit, weight);
      if (quantised) {
        FATHOM_DCHECK(width % kBlock == 0);
        uint8_t codes[kUnit];
        uint8_t scales[kUnit / kBlock];
        quantize_a8(step.context->path, hidden, width, codes, scales);
        dequantize_a8(step.context->path, codes, scales, width, hidden);
      }
      // A last unit may be short; products read whole blocks of 32.
      std::fill(hidden + width, hidden + padded_width(width), 0.0f);
    }
  }
}

struct Sums {
  float* sum = nullptr;    // [N, D] routed sum, fp32
  Bf16* shared = nullptr;  // [N, D] output of the shared expert
};

// Columns [o_begin, o_end) of w2 for at most kBatch slots.
void add_outputs(const Step& step, const Group& group, const Sums& sums, int64_t o_begin,
                 int64_t o_end) {
  Bf16 out[kBatch * kUnit];
  MatmulArgs m;
  m.out_bf16 = out;
  m.out_stride = kUnit;
  m.x = step.hidden + group.hidden_at;
  m.n_rows = group.end - group.begin;
  m.w = &group.weights->w2;
  m.o_begin = o_begin;
  m.o_end = o_end;
  matmul(step.context->path, m);
  const int64_t D = step.args->x.width();
  const int64_t width = o_end - o_begin;
  for (int64_t i = 0; i < m.n_rows; ++i) {
    const Bf16* from = out + i * kUnit;
    const int64_t row = step.slots->row[static_cast<size_t>(group.begin + i)];
    if (group.shared) {
      std::copy(from, from + width, sums.shared + row * D + o_begin);
    } else {
      float* sum = sums.sum + row * D + o_begin;
      for (int64_t j = 0; j < width; ++j) sum[j] = sum[j] + bf16_to_float(from[j]);
    }
  }
}

// Columns [o_begin, o_end) of the routed sum and of the shared output for all rows.
void make_outputs(const Step& step, const Sums& sums, int64_t o_begin, int64_t o_end) {
  const int64_t D = step.args->x.width();
  const int64_t n_rows = step.args->x.n_rows();
  for (int64_t r = 0; r < n_rows; ++r) {
    std::fill(sums.sum + r * D + o_begin, sums.sum + r * D + o_end, 0.0f);
  }
  for (const Group& group : step.slots->groups) {
    for (int64_t begin = group.begin; begin < group.end; begin += kBatch) {
      const Group part{group.weights,
                       begin,
                       std::min(begin + kBatch, group.end),
                       group.shared,
                       group.hidden_at + (begin - group.begin) * group.hidden_stride,
                       group.hidden_stride};
      add_outputs(step, part, sums, o_begin, o_end);
    }
  }
}

void add_shared(const ExpertsArgs& args, const Sums& sums, int64_t o_begin, int64_t o_end) {
  const int64_t D = args.x.width();
  for (int64_t r = 0; r < args.x.n_rows(); ++r) {
    Bf16* y = args.y.row<Bf16>(r);
    for (int64_t o = o_begin; o < o_end; ++o) {
      y[o] = float_to_bf16(sums.sum[r * D + o] + bf16_to_float(sums.shared[r * D + o]));
    }
  }
}

Step prepare(const Context& context, const ExpertsArgs& args, Slots& slots) {
  Step step;
  step.context = &context;
  step.args = &args;
  step.slots = &slots;
  step.unit = unit_for(context.pool.n_threads());
  const int64_t n_rows = args.x.n_rows();
  const int64_t K = padded_width(args.x.width());
  bool a8 = false;
  bool bf16 = false;
  int64_t hidden_floats = 0;
  for (Group& group : slots.groups) {
    for (const Weight* w : {&group.weights->w1, &group.weights->w3}) {
      (takes_a8(*w) ? a8 : bf16) = true;
    }
    FATHOM_CHECK(!takes_a8(group.weights->w2) || group.weights->w2.in() % 32 == 0);
    group.hidden_stride = padded_width(group.weights->w2.in());
    group.hidden_at = hidden_floats;
    hidden_floats += (group.end - group.begin) * group.hidden_stride;
    slots.units.push_back(slots.units.back() + (group.hidden_stride + step.unit - 1) / step.unit);
  }
  if (a8) {
    float* x = context.scratch.get<float>(kRowsPlace, n_rows * K);
    expand_all_rows(context, args.x, WeightFormat::kFp8Block32, x);
    step.x_a8 = x;
  }
  if (bf16) {
    float* x = context.scratch.get<float>(kBf16RowsPlace, n_rows * K);
    expand_all_rows(context, args.x, WeightFormat::kBf16, x);
    step.x_bf16 = x;
  }
  step.hidden = context.scratch.get<float>(kHiddenPlace, hidden_floats);
  return step;
}

}  // namespace

void swiglu(float* gate, const float* up, int64_t n, float limit, float route_weight) {
  for (int64_t j = 0; j < n; ++j) {
    float g = gate[j];
    float u = up[j];
    if (limit > 0.0f) {
      g = std::min(g, limit);
      u = std::clamp(u, -limit, limit);
    }
    const float silu = g * sigmoid(g);
    gate[j] = round_to_bf16(route_weight * (silu * u));
  }
}

void experts(const Context& context, const ExpertsArgs& args,
             const std::function<void(const Tensor&)>* show_shared) {
  const int64_t n_rows = args.x.n_rows();
  const int64_t D = args.x.width();
  if (n_rows == 0) return;
  Slots slots = group_by_expert(args);
  const Step step = prepare(context, args, slots);

  context.pool.parallel_for(slots.units.back(), 1, [&](int64_t begin, int64_t end) {
    size_t g = 0;
    for (int64_t task = begin; task < end; ++task) {
      while (task >= slots.units[g + 1]) ++g;
      const Group& group = slots.groups[g];
      const int64_t o_begin = (task - slots.units[g]) * step.unit;
      make_hidden(step, group, o_begin, std::min(o_begin + step.unit, group.weights->w1.out()));
    }
  });

  Sums sums;
  sums.sum = context.scratch.get<float>(kSumPlace, n_rows * D);
  sums.shared = context.scratch.get<Bf16>(kSharedPlace, n_rows * D);
  const int64_t units = (D + step.unit - 1) / step.unit;
  context.pool.parallel_for(units, 1, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin * step.unit; o < std::min(end * step.unit, D); o += step.unit) {
      const int64_t o_end = std::min(o + step.unit, D);
      make_outputs(step, sums, o, o_end);
      if (show_shared == nullptr) add_shared(args, sums, o, o_end);
    }
  });
  if (show_shared != nullptr) {
    (*show_shared)(Tensor::dense(sums.shared, DType::kBf16, {n_rows, D}));
    add_shared(args, sums, 0, D);
  }
}

}  // namespace cpu
}  // namespace fathom
