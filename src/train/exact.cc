// The exact numerics of the definition: what the training form folds away or reorders.

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "train/canonical.h"
#include "train/canonical_rows.h"
#include "train/model.h"
#include "train/quant.h"

namespace fathom::train {

namespace {

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

// One sequence: q [t, H, d], rows [.., d], slots [t, n].
Tensor attend_one(const Tensor& q, const Tensor& rows, const Tensor& slots, const Tensor& sink,
                  double scale) {
  const Tensor queries = widen(q).contiguous();
  const Tensor vectors = rows.contiguous();
  const Tensor list = slots.contiguous();
  const Tensor sinks = sink.contiguous();
  Tensor out = at::empty_like(queries);
  const int64_t heads = q.size(1);
  const int64_t width = q.size(2);
  FATHOM_CHECK(width % rows::kBlock == 0);
  const int64_t n = list.size(1);
  const rows::Attend first{out.mutable_data_ptr<float>(),
                           queries.const_data_ptr<float>(),
                           vectors.const_data_ptr<float>(),
                           list.const_data_ptr<int64_t>(),
                           n,
                           sinks.const_data_ptr<float>(),
                           heads,
                           width,
                           static_cast<float>(scale)};
  at::parallel_for(0, q.size(0), 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      rows::Attend one = first;
      one.out += t * heads * width;
      one.q += t * heads * width;
      one.slots += t * n;
      rows::attend(one);
    }
  });
  return out.to(at::kBFloat16);
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

// Output of expert `e` [n, D] for A8 rows `in`; wt [n, 1], undefined for the shared expert.
Tensor Model::expert(const Tensor& in, const Tensor& wt, int64_t e) const {
  const auto limit = static_cast<float>(config_.swiglu_limit);
  const Tensor w13 = weight("ffn.w13");
  const Tensor gate = widen(words_->apply_weight(in, w13[0][e])).clamp_max(limit);
  const Tensor up = widen(words_->apply_weight(in, w13[1][e])).clamp(-limit, limit);
  Tensor h = gate * canonical::sigmoid_of(gate) * up;
  h = wt.defined() ? wt * h : h;
  const Tensor hidden = fake_quant(h.to(in.scalar_type()), Quant::kA8);
  return words_->apply_weight(hidden, weight("ffn.w2t")[e].t());
}

Tensor Model::moe_exact(const Tensor& x, const Tensor& wt) const {
  const int64_t routed = wt.size(1);
  const Tensor in = fake_quant(x, Quant::kA8);
  Tensor y = at::zeros(x.sizes(), x.options().dtype(at::kFloat));
  for (int64_t e = 0; e < routed; ++e) {
    const Tensor chosen = wt.select(1, e).nonzero().view({-1});
    if (chosen.size(0) > 0) {
      const Tensor out =
          expert(in.index_select(0, chosen), wt.narrow(1, e, 1).index_select(0, chosen), e);
      y.index_copy_(0, chosen, y.index_select(0, chosen) + widen(out));
    }
  }
  return (y + widen(expert(in, {}, routed))).to(x.scalar_type());
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
