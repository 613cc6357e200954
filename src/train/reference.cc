#include "train/reference.h"

#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>

namespace fathom::train::reference {

namespace {

constexpr double kRmsEps = 1e-20;
constexpr double kNever = -std::numeric_limits<double>::infinity();

Tensor rsqrt_mean(const Tensor& x, int64_t dim) {
  return (x.square().mean(dim, true) + kRmsEps).rsqrt();
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& w) {
  const Tensor v = widen(x);
  return (widen(w) * (v * rsqrt_mean(v, -1))).to(x.scalar_type());
}

Tensor rotate(const Tensor& x, const Placement& where, bool inverse) {
  const int64_t half = where.table.size(1);
  const int64_t rows = x.size(0);
  const int64_t plain = x.size(2) - 2 * half;
  const Tensor position =
      at::arange(rows, x.options().dtype(at::kLong)).remainder(where.length) * where.step;
  const Tensor angles = where.table.index_select(0, position);  // [rows, half, 2]
  const Tensor c = angles.select(2, 0).unsqueeze(1);
  const Tensor s = inverse ? -angles.select(2, 1).unsqueeze(1) : angles.select(2, 1).unsqueeze(1);
  const Tensor tail = widen(x.narrow(2, plain, 2 * half)).view({rows, x.size(1), half, 2});
  const Tensor u = tail.select(3, 0);
  const Tensor v = tail.select(3, 1);
  const Tensor turned = at::stack({u * c - v * s, u * s + v * c}, 3).flatten(2);
  return at::cat({x.narrow(2, 0, plain), turned.to(x.scalar_type())}, 2);
}

Tensor sinkhorn(const Tensor& logits, double eps, int64_t iterations) {
  Tensor c = at::softmax(logits, 2) + eps;
  c = c / (c.sum(1, true) + eps);
  for (int64_t i = 1; i < iterations; ++i) {
    c = c / (c.sum(2, true) + eps);
    c = c / (c.sum(1, true) + eps);
  }
  return c;
}

Tensor hc_collapse(const Tensor& streams, const Tensor& pre, const Tensor& norm) {
  const Tensor u = (pre.unsqueeze(2) * widen(streams)).sum(1).to(streams.scalar_type());
  return rms_norm(u, norm);
}

HcOut hc_read(const Tensor& streams, const Tensor& pre, const HcParams& params,
              const Tensor& norm) {
  const int64_t n = streams.size(0);
  const Tensor flat = widen(streams).flatten(1);
  const Tensor mix = at::matmul(flat, params.fn.t()) * rsqrt_mean(flat, 1);
  const auto part = [&](int64_t site, int64_t begin, int64_t count) {
    return mix.narrow(1, begin, count) * params.scale.select(0, site) +
           params.base.narrow(0, begin, count);
  };
  HcOut out;
  out.streams = streams;
  out.x = hc_collapse(streams, pre, norm);
  out.pre = part(0, 0, 4).sigmoid() + params.eps;
  const Tensor post = 2 * part(1, 4, 4).sigmoid();
  const Tensor comb = sinkhorn(part(2, 8, 16).view({n, 4, 4}), params.eps, params.iterations);
  out.mix = at::cat({post, comb.flatten(1)}, 1);
  return out;
}

Tensor hc_write(const Tensor& streams, const Tensor& y, const Tensor& mix) {
  const int64_t n = streams.size(0);
  const Tensor post = mix.narrow(1, 0, 4).unsqueeze(2);
  const Tensor comb = mix.narrow(1, 4, 16).view({n, 4, 4});
  const Tensor mixed = at::matmul(comb.transpose(1, 2), widen(streams));
  return (post * widen(y).unsqueeze(1) + mixed).to(streams.scalar_type());
}

Tensor engram_add(const Tensor& streams, const Tensor& kv, const Tensor& gain) {
  const int64_t n = streams.size(0);
  const int64_t d = streams.size(2);
  const Tensor h = widen(streams);
  const Tensor all = widen(kv).view({n, 5, d});
  const Tensor key = all.narrow(1, 0, 4);
  const Tensor rs = rsqrt_mean(h, 2) * rsqrt_mean(key, 2);
  const Tensor dot = (h * gain * key).sum(2, true) * rs * (1.0 / std::sqrt(static_cast<double>(d)));
  // Below the floor the derivative is zero, as clamp_min has it.
  const Tensor z = at::copysign(dot.abs().clamp_min(1e-6).sqrt(), dot);
  return (h + z.sigmoid() * all.narrow(1, 4, 1)).to(streams.scalar_type());
}

Tensor route(const Tensor& logits, const Tensor& bias, int64_t top, double factor, Tensor& load) {
  const Tensor soft = at::where(logits.gt(20), logits, logits.clamp_max(20).exp().log1p());
  const Tensor sc = soft.sqrt();
  const Tensor mask = top_mask((sc + bias).detach(), top).to(sc.scalar_type());
  load.add_(mask.sum(0).to(load.scalar_type()));
  const Tensor kept = sc * mask;
  return kept / (kept.sum(1, true) + 1e-20) * factor;
}

Tensor pool_group(const Tensor& gates, const Tensor& values) {
  const Tensor p = at::softmax(gates, 1);
  return (p * values).sum(1);
}

Tensor swiglu(const Tensor& gu, const Tensor& wt, int64_t width, double limit) {
  const int64_t n = gu.size(0);
  const int64_t experts = wt.size(1) + 1;
  const Tensor both = widen(gu).view({n, 2, experts, width});
  const Tensor gate = both.select(1, 0).clamp_max(limit);
  const Tensor up = both.select(1, 1).clamp(-limit, limit);
  const Tensor all = at::cat({wt, at::ones({n, 1}, wt.options())}, 1).unsqueeze(2);
  return (all * (gate * gate.sigmoid() * up)).to(gu.scalar_type()).flatten(1);
}

Tensor cross_entropy(const Tensor& x, const Tensor& head, const Tensor& target,
                     const Tensor& weight, Tensor& nll) {
  const Tensor logits = at::matmul(widen(x), widen(head).t());
  const Tensor each = -at::log_softmax(logits, 1).gather(1, target.unsqueeze(1)).squeeze(1);
  nll = each.detach();
  return (each * weight).sum();
}

AttendOut attend(const Tensor& q, const Tensor& kv, const GlobalKeys& global, const Tensor& sink,
                 const AttendShape& shape) {
  const int64_t t = shape.length;
  const int64_t b = q.size(0) / t;
  const int64_t heads = q.size(1);
  const int64_t d = q.size(2);
  const Tensor rows = widen(q).view({b, t, heads, d});
  const Tensor window = widen(kv).view({b, 1, t, d});
  Tensor values = window;
  Tensor mask = window_mask(t, shape.window, q.device()).expand({b, t, t});
  if (global.rows.defined()) {
    const int64_t entries = shape.entries;
    values = at::cat({window, widen(global.rows).view({b, 1, entries, d})}, 2);
    Tensor seen = visible_mask(t, entries, shape.ratio, q.device()).expand({b, t, entries});
    if (global.selected.defined()) {
      seen = seen.logical_and(selection_bits(global.selected, entries).view({b, t, entries}));
    }
    mask = at::cat({mask, seen}, 2);
  }
  Tensor scores = at::matmul(rows, values.transpose(2, 3)) * shape.scale;  // [b, t, heads, all]
  scores = scores.masked_fill(mask.logical_not().unsqueeze(2), kNever);
  const Tensor last = sink.view({1, 1, heads, 1}).expand({b, t, heads, 1});
  const Tensor lse = at::logsumexp(at::cat({scores, last}, 3), {3}, true);
  const Tensor p = (scores - lse).exp();
  AttendOut out;
  out.out = at::matmul(p, values).to(q.scalar_type()).view({b * t, heads, d});
  out.lse = lse.detach().view({b * t, heads});
  return out;
}

Selection index_select(const Tensor& q, const Tensor& k, const Tensor& weights, const Tensor& pool,
                       const SelectShape& shape) {
  const at::NoGradGuard no_grad;
  const int64_t t = shape.length;
  const int64_t b = q.size(0) / t;
  const int64_t entries = k.size(0) / b;
  const Tensor keys = widen(k).view({b, 1, entries, k.size(1)});
  const Tensor rows = widen(q).view({b, t, q.size(1), q.size(2)});
  const Tensor dots = at::matmul(rows, keys.transpose(2, 3)).relu();
  return select_by((dots * weights.view({b, t, -1, 1})).sum(2), pool, shape);
}

Selection select_by(const Tensor& scored, const Tensor& pool, const SelectShape& shape) {
  const int64_t b = scored.size(0);
  const int64_t t = shape.length;
  const int64_t entries = scored.size(2);
  const Tensor hidden = visible_mask(t, entries, shape.ratio, scored.device()).logical_not();
  Tensor scores = scored.masked_fill(hidden, kNever);
  Selection out;
  if (shape.pool_blocks > 0) {
    std::vector<Tensor> pools;
    for (int64_t i = 0; i < b; ++i) {
      pools.push_back(pool_mask(scores[i], shape));
    }
    out.pool = at::cat(pools);
  }
  if (pool.defined()) {
    scores = scores.masked_fill(pool.view({b, t, entries}).logical_not(), kNever);
  }
  out.entries = top_mask(scores, shape.top).view({b * t, entries});
  return out;
}

}  // namespace fathom::train::reference
