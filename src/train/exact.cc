// The exact numerics of the definition: what the training form folds away or reorders.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/check.h"
#include "train/model.h"
#include "train/quant.h"

namespace fathom::train {

namespace {

constexpr int64_t kSlots = 64;  // attention walks its list in blocks of this many slots
constexpr float kNever = -std::numeric_limits<float>::infinity();

// [T, slots] ids of the true entries of a mask, ascending, -1 at the end.
Tensor slots_of(const Tensor& mask, int64_t slots) {
  const int64_t count = mask.size(1);
  const Tensor ids = at::arange(count, mask.options().dtype(at::kLong)).unsqueeze(0);
  const Tensor keyed = at::where(mask, ids, at::full_like(ids, count));
  Tensor sorted = std::get<0>(keyed.sort(1));
  if (count < slots) {
    sorted = at::cat({sorted, at::full({mask.size(0), slots - count}, count, ids.options())}, 1);
  }
  sorted = sorted.narrow(1, 0, slots);
  return at::where(sorted.lt(count), sorted, at::full_like(sorted, -1));
}

struct Walk {
  Tensor top, sum, acc;  // running maximum, denominator, numerator

  void block(const Tensor& q, const Tensor& rows, const Tensor& there, double scale) {
    Tensor scores = at::matmul(q, rows.transpose(1, 2)) * static_cast<float>(scale);  // [T, H, s]
    scores = scores.masked_fill(there.logical_not().unsqueeze(1), kNever);
    const Tensor next = at::maximum(top, scores.amax(2, true));
    const Tensor p = (scores - next).exp();
    const Tensor keep = (top - next).exp();
    sum = sum * keep + p.sum(2, true);
    acc = acc * keep + at::matmul(p.to(at::kBFloat16).to(at::kFloat), rows);
    top = next;
  }
};

Tensor attend_one(const Tensor& q, const Tensor& rows, const Tensor& slots, const Tensor& sink,
                  double scale) {
  const int64_t t = q.size(0);
  const int64_t heads = q.size(1);
  const auto options = rows.options();
  Walk walk{at::full({t, heads, 1}, -1e30F, options), at::zeros({t, heads, 1}, options),
            at::zeros({t, heads, q.size(2)}, options)};
  for (int64_t at = 0; at < slots.size(1); at += kSlots) {
    const Tensor part = slots.narrow(1, at, std::min(kSlots, slots.size(1) - at));
    const Tensor flat = part.clamp_min(0).reshape({-1});
    const Tensor picked = rows.index_select(0, flat).view({t, part.size(1), rows.size(1)});
    walk.block(q, picked, part.ge(0), scale);
  }
  const Tensor sum = walk.sum + (sink.view({1, heads, 1}) - walk.top).exp();
  return (walk.acc / sum).to(at::kBFloat16);
}

}  // namespace

Tensor attend_exact(const Tensor& q, const Tensor& kv, const ExactKeys& global, const Tensor& sink,
                    const AttendShape& shape) {
  const int64_t t = shape.length;
  const int64_t batch = q.size(0) / t;
  std::vector<Tensor> outs;
  for (int64_t b = 0; b < batch; ++b) {
    Tensor rows = widen(kv.narrow(0, b * t, t));
    Tensor slots = slots_of(window_mask(t, shape.window, q.device()), shape.window);
    if (global.rows.defined()) {
      const int64_t entries = shape.entries;
      const Tensor& selected = global.selected;
      const Tensor seen = selected.defined() ? selection_bits(selected, entries).narrow(0, b * t, t)
                                             : visible_mask(t, entries, shape.ratio, q.device());
      const Tensor more = slots_of(seen, selected.defined() ? global.top : entries);
      rows = at::cat({rows, widen(global.rows.narrow(0, b * entries, entries))});
      slots = at::cat({slots, at::where(more.ge(0), more + t, more)}, 1);
    }
    outs.push_back(attend_one(widen(q.narrow(0, b * t, t)), rows, slots, sink, shape.scale));
  }
  return at::cat(outs);
}

Selection select_bf16(const Tensor& q, const Tensor& k, const Tensor& weights, const Tensor& pool,
                      const SelectShape& shape) {
  const int64_t t = shape.length;
  const int64_t batch = q.size(0) / t;
  const int64_t entries = k.size(0) / batch;
  const auto rounded = [](const Tensor& v) { return v.to(at::kBFloat16).to(at::kFloat); };
  const Tensor keys = widen(k).view({batch, 1, entries, k.size(1)});
  const Tensor rows = widen(q).view({batch, t, q.size(1), q.size(2)});
  const Tensor dots = rounded(at::matmul(rows, keys.transpose(2, 3))).relu();
  const Tensor each = rounded(dots * widen(weights).view({batch, t, -1, 1}));
  Tensor scores = rounded(each.sum(2));
  const Tensor hidden = visible_mask(t, entries, shape.ratio, q.device()).logical_not();
  scores = scores.masked_fill(hidden, kNever);
  Selection out;
  if (shape.pool_blocks > 0) {
    std::vector<Tensor> pools;
    for (int64_t i = 0; i < batch; ++i) {
      pools.push_back(pool_mask(scores[i], shape));
    }
    out.pool = at::cat(pools);
  }
  if (pool.defined()) {
    scores = scores.masked_fill(pool.view({batch, t, entries}).logical_not(), kNever);
  }
  out.entries = top_mask(scores, shape.top).view({batch * t, entries});
  return out;
}

Tensor Model::moe_exact(const Tensor& x, const Tensor& wt) const {
  const int64_t routed = wt.size(1);
  const auto limit = static_cast<float>(config_.swiglu_limit);
  const Tensor w13 = weight("ffn.w13");
  const Tensor w2t = weight("ffn.w2t");
  const Tensor in = fake_quant(x, Quant::kA8);
  Tensor y = at::zeros(x.sizes(), x.options().dtype(at::kFloat));
  for (int64_t e = 0; e <= routed; ++e) {
    const Tensor gate = widen(apply_weight(in, w13[0][e])).clamp_max(limit);
    const Tensor up = widen(apply_weight(in, w13[1][e])).clamp(-limit, limit);
    Tensor h = gate * gate.sigmoid() * up;
    h = e < routed ? wt.narrow(1, e, 1) * h : h;
    const Tensor out = product(fake_quant(h.to(x.scalar_type()), Quant::kA8), w2t[e]);
    y = y + (e < routed ? widen(out) * wt.narrow(1, e, 1).gt(0) : widen(out));
  }
  return y.to(x.scalar_type());
}

Tensor rope_table(const TextConfig& config, bool scaled, int64_t positions) {
  const int64_t dim = config.qk_rope_head_dim;
  const double base = scaled ? config.compress_rope_theta : config.rope_theta;
  const auto original = static_cast<double>(config.rope_scaling.original_max_position_embeddings);
  const auto correction = [&](double turns) {
    return static_cast<double>(dim) * std::log(original / (2 * std::numbers::pi * turns)) /
           (2 * std::log(base));
  };
  const double last = static_cast<double>(dim - 1);
  const double low = std::clamp(std::floor(correction(config.rope_scaling.beta_fast)), 0.0, last);
  double high = std::clamp(std::ceil(correction(config.rope_scaling.beta_slow)), 0.0, last);
  high = high > low ? high : low + 0.001;
  const float inverse_span = 1.0F / static_cast<float>(high - low);
  const auto factor = static_cast<float>(config.rope_scaling.factor);
  Tensor out = at::empty({positions, dim / 2, 2}, at::kFloat);
  auto values = out.accessor<float, 3>();
  for (int64_t j = 0; j < dim / 2; ++j) {
    const float e = static_cast<float>(2 * j) / static_cast<float>(dim);
    float f = 1.0F / static_cast<float>(std::pow(base, static_cast<double>(e)));
    if (scaled) {
      const float ramp =
          std::clamp((static_cast<float>(j) - static_cast<float>(low)) * inverse_span, 0.0F, 1.0F);
      const float smooth = 1.0F - ramp;
      f = (f / factor) * (1.0F - smooth) + f * smooth;
    }
    for (int64_t p = 0; p < positions; ++p) {
      const auto angle = static_cast<double>(static_cast<float>(p) * f);
      values[p][j][0] = static_cast<float>(std::cos(angle));
      values[p][j][1] = static_cast<float>(std::sin(angle));
    }
  }
  return out;
}

}  // namespace fathom::train
