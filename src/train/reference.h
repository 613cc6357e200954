#pragma once

// The ATen form of the words of ops.h. Differentiable through autograd.

#include "train/ops.h"

namespace fathom::train::reference {

Tensor rms_norm(const Tensor& x, const Tensor& w);
Tensor rotate(const Tensor& x, const Placement& where, bool inverse);
HcOut hc_read(const Tensor& streams, const Tensor& pre, const HcParams& params, const Tensor& norm);
Tensor hc_collapse(const Tensor& streams, const Tensor& pre, const Tensor& norm);
Tensor hc_write(const Tensor& streams, const Tensor& y, const Tensor& mix);
Tensor engram_add(const Tensor& streams, const Tensor& kv, const Tensor& gain);
Tensor route(const Tensor& logits, const Tensor& bias, int64_t top, double factor, Tensor& load);
Tensor pool_group(const Tensor& gates, const Tensor& values);
Tensor swiglu(const Tensor& gu, const Tensor& wt, int64_t width, double limit);
Tensor cross_entropy(const Tensor& x, const Tensor& head, const Tensor& target,
                     const Tensor& weight, Tensor& nll);
AttendOut attend(const Tensor& q, const Tensor& kv, const GlobalKeys& global, const Tensor& sink,
                 const AttendShape& shape);
Selection index_select(const Tensor& q, const Tensor& k, const Tensor& weights, const Tensor& pool,
                       const SelectShape& shape);

// What index_select chooses by scores [batch, length, G] of all entries, visible or not.
Selection select_by(const Tensor& scores, const Tensor& pool, const SelectShape& shape);

// 20 iterations on logits [N, 4, 4] (spec/backbone.md 3.1).
Tensor sinkhorn(const Tensor& logits, double eps, int64_t iterations);

}  // namespace fathom::train::reference
