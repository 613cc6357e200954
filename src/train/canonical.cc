#include "train/canonical.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/math.h"
#include "train/canonical_rows.h"
#include "train/reference.h"

namespace fathom::train::canonical {

namespace {

constexpr float kRmsEps = 1e-20F;

// fp32, contiguous, on the host.
Tensor plain(const Tensor& x) {
  FATHOM_CHECK(x.is_cpu() && !at::GradMode::is_enabled());
  FATHOM_CHECK(x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat);
  return x.to(at::kFloat).contiguous();
}

// The same with rows that end in zeros up to a whole block.
Tensor padded(const Tensor& x) {
  const int64_t over = x.size(-1) % rows::kBlock;
  const Tensor v = plain(x);
  return over == 0 ? v : at::constant_pad_nd(v, {0, rows::kBlock - over});
}

Tensor mapped(const Tensor& x, float (*function)(float)) {
  Tensor out = plain(x).clone();
  float* values = out.mutable_data_ptr<float>();
  at::parallel_for(0, out.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      values[i] = function(values[i]);
    }
  });
  return out;
}

// Sums along `dim`, kept, in order.
Tensor in_order(const Tensor& x, int64_t dim) {
  Tensor sum = x.select(dim, 0);
  for (int64_t i = 1; i < x.size(dim); ++i) {
    sum = sum + x.select(dim, i);
  }
  return sum.unsqueeze(dim);
}

// Pair trees of the rows of a and b, one with its like: [.., width] -> [.., 1].
Tensor row_dots(const Tensor& a, const Tensor& b) {
  const Tensor left = padded(a);
  const Tensor right = padded(b);
  auto shape = left.sizes().vec();
  const int64_t width = shape.back();
  shape.back() = 1;
  Tensor out = at::empty(shape, at::kFloat);
  const auto* x = left.const_data_ptr<float>();
  const auto* y = right.const_data_ptr<float>();
  auto* values = out.mutable_data_ptr<float>();
  at::parallel_for(0, out.numel(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      values[i] = rows::pair_tree(x + i * width, y + i * width, width);
    }
  });
  return out;
}

// 1 / sqrt(mean of squares + eps) of rows.
Tensor inverse_rms(const Tensor& x) {
  const Tensor squares = row_dots(x, x);
  const auto width = static_cast<float>(x.size(-1));
  Tensor out = at::empty_like(squares);
  const auto* from = squares.const_data_ptr<float>();
  auto* to = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    to[i] = rsqrt(from[i] / width + kRmsEps);
  }
  return out;
}

Tensor linear_f32(const Tensor& x, const Tensor& w) {
  const Tensor a = padded(x);
  const Tensor b = padded(w);
  Tensor out = at::empty({a.size(0), b.size(0)}, at::kFloat);
  const rows::Products products{out.mutable_data_ptr<float>(),
                                a.const_data_ptr<float>(),
                                a.size(0),
                                b.const_data_ptr<float>(),
                                b.size(0),
                                a.size(1)};
  at::parallel_for(0, products.m, 16,
                   [&](int64_t begin, int64_t end) { rows::products(products, begin, end); });
  return out;
}

Tensor linear_wide(const Tensor& x, const Tensor& w) {
  return at::matmul(plain(x).to(at::kDouble), plain(w).to(at::kDouble).t()).to(at::kFloat);
}

template <Tensor (*kLinear)(const Tensor&, const Tensor&)>
Tensor apply_weight(const Tensor& x, const Tensor& w) {
  return kLinear(x, w).to(x.scalar_type());
}

template <Tensor (*kLinear)(const Tensor&, const Tensor&)>
Tensor apply_groups(const Tensor& x, const Tensor& w) {
  std::vector<Tensor> out;
  for (int64_t g = 0; g < x.size(0); ++g) {
    out.push_back(apply_weight<kLinear>(x[g], w[g]));
  }
  return at::stack(out);
}

Tensor rms_norm(const Tensor& x, const Tensor& w) {
  const Tensor v = plain(x);
  return (widen(w) * (v * inverse_rms(v))).to(x.scalar_type());
}

Tensor hc_collapse(const Tensor& streams, const Tensor& pre, const Tensor& norm) {
  const Tensor u = in_order(pre.unsqueeze(2) * plain(streams), 1).squeeze(1);
  return rms_norm(u.to(streams.scalar_type()), norm);
}

// spec/backbone.md 3.1: 20 iterations on logits [N, 4, 4].
Tensor sinkhorn(const Tensor& logits, double eps, int64_t iterations) {
  const Tensor e = mapped(logits - logits.amax(2, true), exp_f32);
  Tensor c = e / in_order(e, 2) + eps;
  c = c / (in_order(c, 1) + eps);
  for (int64_t i = 1; i < iterations; ++i) {
    c = c / (in_order(c, 2) + eps);
    c = c / (in_order(c, 1) + eps);
  }
  return c;
}

HcOut hc_read(const Tensor& streams, const Tensor& pre, const HcParams& params,
              const Tensor& norm) {
  const int64_t n = streams.size(0);
  const Tensor flat = plain(streams).flatten(1);
  const Tensor mix = linear_f32(flat, params.fn) * inverse_rms(flat);
  const auto part = [&](int64_t site, int64_t begin, int64_t count) {
    return mix.narrow(1, begin, count) * params.scale.select(0, site) +
           params.base.narrow(0, begin, count);
  };
  HcOut out;
  out.streams = streams;
  out.x = hc_collapse(streams, pre, norm);
  out.pre = sigmoid_of(part(0, 0, 4)) + params.eps;
  const Tensor post = 2 * sigmoid_of(part(1, 4, 4));
  const Tensor comb = sinkhorn(part(2, 8, 16).view({n, 4, 4}), params.eps, params.iterations);
  out.mix = at::cat({post, comb.flatten(1)}, 1);
  return out;
}

Tensor hc_write(const Tensor& streams, const Tensor& y, const Tensor& mix) {
  const Tensor post = mix.narrow(1, 0, 4).unsqueeze(2);
  const Tensor comb = mix.narrow(1, 4, 16).view({streams.size(0), 4, 4, 1});
  const Tensor mixed = in_order(comb * plain(streams).unsqueeze(2), 1).squeeze(1);
  return (post * plain(y).unsqueeze(1) + mixed).to(streams.scalar_type());
}

// By hand, because a library's square root of tensors need not be the one nearest.
float engram_gate(float d) {
  return sigmoid(std::copysign(std::sqrt(std::max(std::fabs(d), 1e-6F)), d));
}

Tensor engram_add(const Tensor& streams, const Tensor& kv, const Tensor& gain) {
  const int64_t d = streams.size(2);
  const Tensor h = plain(streams);
  const Tensor all = plain(kv).view({streams.size(0), 5, d});
  const Tensor key = all.narrow(1, 0, 4);
  const Tensor both = inverse_rms(h) * inverse_rms(key);
  const Tensor dot = row_dots(h * gain, key) * both * (1.0 / std::sqrt(static_cast<double>(d)));
  return (h + mapped(dot, engram_gate) * all.narrow(1, 4, 1)).to(streams.scalar_type());
}

float sqrt_softplus(float v) { return std::sqrt(v > 20 ? v : log1p_f32(exp_f32(v))); }

// Weights sum in the order of decreasing score with bias.
Tensor route(const Tensor& logits, const Tensor& bias, int64_t top, double factor, Tensor& load) {
  const Tensor scores = mapped(logits, sqrt_softplus);
  const auto sorted = at::sort(scores + bias, /*stable=*/true, 1, /*descending=*/true);
  const Tensor ids = std::get<1>(sorted).narrow(1, 0, top);
  const Tensor kept = scores.gather(1, ids);
  const Tensor out =
      at::zeros_like(scores).scatter(1, ids, kept / (in_order(kept, 1) + 1e-20) * factor);
  load.add_(at::zeros_like(scores).scatter(1, ids, 1.0).sum(0));
  return out;
}

Tensor pool_group(const Tensor& gates, const Tensor& values) {
  const Tensor e = mapped(gates - gates.amax(1, true), exp_f32);
  return in_order(e / in_order(e, 1) * values, 1).squeeze(1);
}

// scores [t, G] of one sequence from q [t, H, d], k [G, d], w [t, H].
Tensor index_scores(const Tensor& q, const Tensor& k, const Tensor& w, bool round) {
  const int64_t t = q.size(0);
  const int64_t heads = q.size(1);
  const int64_t entries = k.size(0);
  const Tensor dots = linear_f32(q.flatten(0, 1), k).view({t, heads, entries});
  const Tensor weights = plain(w);
  if (round) {
    const auto rounded = [](const Tensor& v) { return v.to(at::kBFloat16).to(at::kFloat); };
    return rounded(in_order(rounded(rounded(dots).relu() * weights.unsqueeze(2)), 1).squeeze(1));
  }
  Tensor out = at::empty({t, entries}, at::kFloat);
  auto* scores = out.mutable_data_ptr<float>();
  const auto* each = dots.const_data_ptr<float>();
  const auto* of_head = weights.const_data_ptr<float>();
  at::parallel_for(0, t, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      rows::index_scores(scores + i * entries, each + i * heads * entries, of_head + i * heads,
                         heads, entries);
    }
  });
  return out;
}

Selection index_select(const Tensor& q, const Tensor& k, const Tensor& weights, const Tensor& pool,
                       const SelectShape& shape) {
  const int64_t t = shape.length;
  const int64_t batch = q.size(0) / t;
  const int64_t entries = k.size(0) / batch;
  std::vector<Tensor> scores;
  for (int64_t b = 0; b < batch; ++b) {
    scores.push_back(index_scores(q.narrow(0, b * t, t), k.narrow(0, b * entries, entries),
                                  weights.narrow(0, b * t, t), shape.round_scores));
  }
  return reference::select_by(at::stack(scores), pool, shape);
}

template <Tensor (*kLinear)(const Tensor&, const Tensor&)>
Words words_with() {
  Words out;
  out.apply_weight = apply_weight<kLinear>;
  out.apply_groups = apply_groups<kLinear>;
  out.linear_f32 = kLinear;
  out.rms_norm = rms_norm;
  out.hc_read = hc_read;
  out.hc_collapse = hc_collapse;
  out.hc_write = hc_write;
  out.engram_add = engram_add;
  out.route = route;
  out.pool_group = pool_group;
  out.index_select = index_select;
  return out;
}

}  // namespace

Tensor sigmoid_of(const Tensor& x) { return mapped(x, fathom::sigmoid); }

const Words& words() {
  static const Words kWords = words_with<linear_f32>();
  return kWords;
}

const Words& wide_words() {
  static const Words kWords = words_with<linear_wide>();
  return kWords;
}

}  // namespace fathom::train::canonical
