#include "train/ops.h"

#include <limits>

#include "train/reference.h"

#ifdef FATHOM_TRAIN_CUDA
#include "train/fused.h"
#endif

namespace fathom::train {

namespace {

bool g_reference = false;  // set once by the self-check, before any thread starts

#ifdef FATHOM_TRAIN_CUDA
bool use_fused(const Tensor& x) {
  return !g_reference && x.is_cuda() && x.scalar_type() == at::kBFloat16;
}
#define FATHOM_FUSED(x, call) \
  if (use_fused(x)) {         \
    return fused::call;       \
  }
#else
#define FATHOM_FUSED(x, call)
#endif

}  // namespace

void set_reference_ops(bool on) { g_reference = on; }

Tensor widen(const Tensor& x) { return x.scalar_type() == at::kBFloat16 ? x.to(at::kFloat) : x; }

Tensor product(const Tensor& a, const Tensor& b) {
  // A CPU may sum bf16 products in bf16; the definition sums in fp32.
  return a.is_cuda() ? at::matmul(a, b) : at::matmul(widen(a), widen(b)).to(a.scalar_type());
}

Tensor apply_weight(const Tensor& x, const Tensor& w) { return product(x, w.t()); }

Tensor apply_groups(const Tensor& x, const Tensor& w) { return product(x, w.transpose(1, 2)); }

Tensor linear_f32(const Tensor& x, const Tensor& w) {
  FATHOM_FUSED(x, linear_f32(x, w));
  return at::matmul(widen(x), widen(w).t());
}

Tensor rms_norm(const Tensor& x, const Tensor& w) {
  FATHOM_FUSED(x, rms_norm(x, w));
  return reference::rms_norm(x, w);
}

Tensor rotate(const Tensor& x, const Placement& where, bool inverse) {
  FATHOM_FUSED(x, rotate(x, where, inverse));
  return reference::rotate(x, where, inverse);
}

HcOut hc_read(const Tensor& streams, const Tensor& pre, const HcParams& params,
              const Tensor& norm) {
  FATHOM_FUSED(streams, hc_read(streams, pre, params, norm));
  return reference::hc_read(streams, pre, params, norm);
}

Tensor hc_collapse(const Tensor& streams, const Tensor& pre, const Tensor& norm) {
  FATHOM_FUSED(streams, hc_collapse(streams, pre, norm));
  return reference::hc_collapse(streams, pre, norm);
}

Tensor hc_write(const Tensor& streams, const Tensor& y, const Tensor& mix) {
  FATHOM_FUSED(streams, hc_write(streams, y, mix));
  return reference::hc_write(streams, y, mix);
}

Tensor engram_add(const Tensor& streams, const Tensor& kv, const Tensor& gain) {
  FATHOM_FUSED(streams, engram_add(streams, kv, gain));
  return reference::engram_add(streams, kv, gain);
}

Tensor route(const Tensor& logits, const Tensor& bias, int64_t top, double factor, Tensor& load) {
#ifdef FATHOM_TRAIN_CUDA
  if (!g_reference && logits.is_cuda() && logits.scalar_type() == at::kFloat) {
    return fused::route(logits, bias, top, factor, load);
  }
#endif
  return reference::route(logits, bias, top, factor, load);
}

Tensor pool_group(const Tensor& gates, const Tensor& values) {
  return reference::pool_group(gates, values);
}

Tensor swiglu(const Tensor& gu, const Tensor& wt, int64_t width, double limit) {
  FATHOM_FUSED(gu, swiglu(gu, wt, width, limit));
  return reference::swiglu(gu, wt, width, limit);
}

Tensor cross_entropy(const Tensor& x, const Tensor& head, const Tensor& target,
                     const Tensor& weight, Tensor& nll) {
  FATHOM_FUSED(x, cross_entropy(x, head, target, weight, nll));
  return reference::cross_entropy(x, head, target, weight, nll);
}

AttendOut attend(const Tensor& q, const Tensor& kv, const GlobalKeys& global, const Tensor& sink,
                 const AttendShape& shape) {
  FATHOM_FUSED(q, attend(q, kv, global, sink, shape));
  return reference::attend(q, kv, global, sink, shape);
}

Selection index_select(const Tensor& q, const Tensor& k, const Tensor& weights, const Tensor& pool,
                       const SelectShape& shape) {
  FATHOM_FUSED(q, index_select(q, k, weights, pool, shape));
  return reference::index_select(q, k, weights, pool, shape);
}

Tensor selection_bits(const Tensor& entries, int64_t count) {
  if (entries.scalar_type() == at::kBool) {
    return entries;
  }
  const Tensor shifts = at::arange(8, entries.options().dtype(at::kInt));
  const Tensor bits = entries.to(at::kInt).unsqueeze(2).bitwise_right_shift(shifts).bitwise_and(1);
  return bits.to(at::kBool).flatten(1).narrow(1, 0, count);
}

Tensor visible_mask(int64_t length, int64_t entries, int64_t ratio, const at::Device& device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const Tensor count = (at::arange(length, options) + 1).floor_divide(ratio).unsqueeze(1);
  return at::arange(entries, options).unsqueeze(0).lt(count);
}

Tensor window_mask(int64_t length, int64_t window, const at::Device& device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const Tensor age = at::arange(length, options).unsqueeze(1) - at::arange(length, options);
  return age.ge(0).logical_and(age.lt(window));
}

Tensor top_mask(const Tensor& scores, int64_t top) {
  const int64_t kept = std::min<int64_t>(top, scores.size(-1));
  const auto sorted = at::sort(scores, /*stable=*/true, -1, /*descending=*/true);
  const Tensor ids = std::get<1>(sorted).narrow(-1, 0, kept);
  Tensor mask = at::zeros(scores.sizes(), scores.options().dtype(at::kBool));
  mask.scatter_(-1, ids, true);
  return mask.logical_and(scores.gt(-std::numeric_limits<double>::infinity()));
}

Tensor pool_mask(const Tensor& scores, const SelectShape& shape) {
  const int64_t t = scores.size(0);
  const int64_t entries = scores.size(1);
  const int64_t blocks = (entries + shape.block_size - 1) / shape.block_size;
  const double never = -std::numeric_limits<double>::infinity();
  Tensor padded = at::full({t, blocks * shape.block_size}, never, scores.options());
  padded.narrow(1, 0, entries).copy_(scores);
  Tensor best = padded.view({t, blocks, shape.block_size}).amax(2);
  const auto options = scores.options().dtype(at::kLong);
  const Tensor visible = (at::arange(t, options) + 1).floor_divide(shape.ratio);
  const Tensor newest = (visible - 1).floor_divide(shape.block_size).unsqueeze(1);
  const Tensor pinned =
      at::arange(blocks, options).unsqueeze(0).eq(newest).logical_and(visible.gt(0).unsqueeze(1));
  best = best.masked_fill(pinned, std::numeric_limits<double>::infinity());
  const Tensor kept = top_mask(best, shape.pool_blocks);
  return kept.unsqueeze(2)
      .expand({t, blocks, shape.block_size})
      .reshape({t, blocks * shape.block_size})
      .narrow(1, 0, entries);
}

}  // namespace fathom::train
