#include "train/fused.h"

#include <torch/csrc/autograd/custom_function.h>

#include "base/check.h"
#include "train/kernels.h"

namespace fathom::train::fused {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Everything runs on the default stream.
constexpr gpu::Stream kStream = nullptr;

gpu::Bf16* bf(const Tensor& t) { return static_cast<gpu::Bf16*>(t.mutable_data_ptr()); }
float* f32(const Tensor& t) { return static_cast<float*>(t.mutable_data_ptr()); }
uint8_t* bytes(const Tensor& t) {
  return t.defined() && t.numel() > 0 ? static_cast<uint8_t*>(t.mutable_data_ptr()) : nullptr;
}

Tensor floats(const Tensor& like, at::IntArrayRef shape) {
  return at::empty(shape, like.options().dtype(at::kFloat));
}
Tensor zeros(const Tensor& like, at::IntArrayRef shape) {
  return at::zeros(shape, like.options().dtype(at::kFloat));
}

class LinearF32Fn : public Function<LinearF32Fn> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& w) {
    context->save_for_backward({x, w});
    return at::mm(x, w.t(), at::kFloat);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor dy = grads[0].to(at::kBFloat16);
    return {at::mm(dy, saved[1]), at::mm(dy.t(), saved[0])};
  }
};

class RmsNormFn : public Function<RmsNormFn> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x_in, const Tensor& w) {
    const Tensor x = x_in.stride(1) == 1 ? x_in : x_in.contiguous();
    Tensor y = at::empty({x.size(0), x.size(1)}, x.options());
    gpu::rms_norm_fwd({bf(x), x.stride(0), bf(w), bf(y)}, x.size(0), static_cast<int>(x.size(1)),
                      kStream);
    context->save_for_backward({x, w});
    return y;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor& x = saved[0];
    const Tensor dy = grads[0].contiguous();
    Tensor dx = at::empty({x.size(0), x.size(1)}, x.options());
    const Tensor dw = zeros(x, {x.size(1)});
    const gpu::RmsNormGrad p{bf(x), x.stride(0), bf(saved[1]), bf(dy), bf(dx), f32(dw)};
    gpu::rms_norm_bwd(p, x.size(0), static_cast<int>(x.size(1)), kStream);
    return {dx, dw.to(saved[1].scalar_type())};
  }
};

Tensor turn(const Tensor& x, const Placement& where, bool inverse) {
  Tensor y = at::empty_like(x);
  gpu::Rope p{};
  p.x = bf(x);
  p.y = bf(y);
  p.table = f32(where.table);
  p.rows = x.size(0);
  p.heads = static_cast<int>(x.size(1));
  p.dim = static_cast<int>(x.size(2));
  p.rope = static_cast<int>(2 * where.table.size(1));
  p.length = static_cast<int>(where.length);
  p.step = static_cast<int>(where.step);
  p.inverse = inverse;
  gpu::rope(p, kStream);
  return y;
}

class RotateFn : public Function<RotateFn> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Placement& where,
                        bool inverse) {
    context->saved_data["table"] = where.table;
    context->saved_data["length"] = where.length;
    context->saved_data["step"] = where.step;
    context->saved_data["inverse"] = inverse;
    return turn(x.contiguous(), where, inverse);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    auto& data = context->saved_data;
    const Placement where{data["table"].toTensor(), data["length"].toInt(), data["step"].toInt()};
    return {turn(grads[0].contiguous(), where, !data["inverse"].toBool()), Tensor(), Tensor()};
  }
};

// The projection of the streams: bf16 streams by the high and the low half of fn.
struct HcForward {
  Tensor x, r, mix, high;

  HcForward(const Tensor& streams, const Tensor& pre, const Tensor& fn, const Tensor& norm) {
    const int64_t n = streams.size(0);
    const int64_t d = streams.size(2);
    x = at::empty({n, d}, streams.options());
    r = floats(streams, {n});
    gpu::hc_read_fwd({bf(streams), f32(pre), bf(norm), bf(x), f32(r)}, n, static_cast<int>(d),
                     kStream);
    if (fn.defined()) {
      high = fn.to(at::kBFloat16);
      const Tensor both = at::cat({high, (fn - high).to(at::kBFloat16)});
      mix = at::mm(streams.view({n, 4 * d}), both.t(), at::kFloat);
    }
  }
};

class HcReadFn : public Function<HcReadFn> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& streams, const Tensor& pre,
                               const HcParams& params, const Tensor& norm, const Tensor& fn,
                               const Tensor& scale, const Tensor& base) {
    const int64_t n = streams.size(0);
    const HcForward f(streams, pre, fn, norm);
    const Tensor next = floats(streams, {n, 4});
    const Tensor mix = floats(streams, {n, 20});
    const gpu::HcCoef coef{f32(f.mix),
                           f32(f.r),
                           f32(scale),
                           f32(base),
                           static_cast<float>(params.eps),
                           static_cast<int>(params.iterations)};
    gpu::hc_coef_fwd(coef, f32(next), f32(mix), n, kStream);
    context->save_for_backward({streams, pre, norm, scale, base});
    context->saved_data["high"] = f.high;
    context->saved_data["mix"] = f.mix;
    context->saved_data["r"] = f.r;
    context->saved_data["eps"] = params.eps;
    context->saved_data["iterations"] = params.iterations;
    return {streams, f.x, next, mix};
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const Tensor& streams = saved[0];
    const int64_t n = streams.size(0);
    const int64_t d = streams.size(2);
    const Tensor mix = data["mix"].toTensor();
    const Tensor r = data["r"].toTensor();
    const gpu::HcCoef coef{f32(mix),
                           f32(r),
                           f32(saved[3]),
                           f32(saved[4]),
                           static_cast<float>(data["eps"].toDouble()),
                           static_cast<int>(data["iterations"].toInt())};
    const Tensor dnext = grads[2].contiguous();
    const Tensor dmixw = grads[3].contiguous();
    const Tensor dmix = at::empty({n, 24}, streams.options());
    const Tensor cr = floats(streams, {n});
    const Tensor dsum = floats(streams, {n, 27});
    gpu::hc_coef_bwd(coef, {f32(dnext), f32(dmixw), bf(dmix), f32(cr), f32(dsum)},
                     static_cast<int>(4 * d), n, kStream);
    const Tensor dpass = grads[0].contiguous();
    const Tensor dx = grads[1].contiguous();
    const Tensor dstreams = at::empty_like(streams);
    const Tensor dpre = floats(streams, {n, 4});
    const Tensor dw = zeros(streams, {d});
    gpu::hc_read_bwd({bf(streams), f32(saved[1]), bf(saved[2]), bf(dx), bf(dpass), f32(cr),
                      bf(dstreams), f32(dpre), f32(dw)},
                     n, static_cast<int>(d), kStream);
    dstreams.view({n, 4 * d}).addmm_(dmix, data["high"].toTensor());
    const Tensor dfn = at::mm(dmix.t(), streams.view({n, 4 * d}), at::kFloat);
    const Tensor sums = dsum.sum(0);
    return {dstreams,
            dpre,
            Tensor(),
            dw.to(saved[2].scalar_type()),
            dfn,
            sums.narrow(0, 24, 3),
            sums.narrow(0, 0, 24)};
  }
};

class HcCollapseFn : public Function<HcCollapseFn> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& streams, const Tensor& pre,
                        const Tensor& norm) {
    context->save_for_backward({streams, pre, norm});
    return HcForward(streams, pre, Tensor(), norm).x;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor& streams = saved[0];
    const int64_t n = streams.size(0);
    const int64_t d = streams.size(2);
    const Tensor dx = grads[0].contiguous();
    const Tensor dstreams = at::empty_like(streams);
    const Tensor dpre = floats(streams, {n, 4});
    const Tensor dw = zeros(streams, {d});
    gpu::hc_read_bwd({bf(streams), f32(saved[1]), bf(saved[2]), bf(dx), nullptr, nullptr,
                      bf(dstreams), f32(dpre), f32(dw)},
                     n, static_cast<int>(d), kStream);
    return {dstreams, dpre, dw.to(saved[2].scalar_type())};
  }
};

class HcWriteFn : public Function<HcWriteFn> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& streams, const Tensor& y,
                        const Tensor& mix) {
    Tensor out = at::empty_like(streams);
    gpu::hc_write_fwd({bf(streams), bf(y), f32(mix)}, bf(out), streams.size(0),
                      static_cast<int>(streams.size(2)), kStream);
    context->save_for_backward({streams, y, mix});
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor dout = grads[0].contiguous();
    const Tensor dstreams = at::empty_like(saved[0]);
    const Tensor dy = at::empty_like(saved[1]);
    const Tensor dmix = at::empty_like(saved[2]);
    gpu::hc_write_bwd({bf(saved[0]), bf(saved[1]), f32(saved[2])},
                      {bf(dout), bf(dstreams), bf(dy), f32(dmix)}, saved[0].size(0),
                      static_cast<int>(saved[0].size(2)), kStream);
    return {dstreams, dy, dmix};
  }
};

class EngramFn : public Function<EngramFn> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& streams, const Tensor& kv,
                        const Tensor& gain) {
    Tensor out = at::empty_like(streams);
    gpu::engram_fwd({bf(streams), bf(kv), f32(gain), bf(out)}, streams.size(0),
                    static_cast<int>(streams.size(2)), kStream);
    context->save_for_backward({streams, kv, gain});
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor dout = grads[0].contiguous();
    const Tensor dstreams = at::empty_like(saved[0]);
    const Tensor dkv = at::empty_like(saved[1]);
    const Tensor dgain = at::zeros_like(saved[2]);
    gpu::engram_bwd(
        {bf(saved[0]), bf(saved[1]), f32(saved[2]), bf(dout), bf(dstreams), bf(dkv), f32(dgain)},
        saved[0].size(0), static_cast<int>(saved[0].size(2)), kStream);
    return {dstreams, dkv, dgain};
  }
};

class RouteFn : public Function<RouteFn> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& logits, const Tensor& bias,
                        int64_t top, double factor, const Tensor& load) {
    const Tensor wt = at::empty_like(logits);
    const gpu::Route p{f32(logits),
                       f32(bias),
                       f32(wt),
                       f32(load),
                       static_cast<int>(logits.size(1)),
                       static_cast<int>(top),
                       static_cast<float>(factor)};
    gpu::route_fwd(p, logits.size(0), kStream);
    context->save_for_backward({logits, wt});
    context->saved_data["factor"] = factor;
    return wt;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor dwt = grads[0].contiguous();
    const Tensor dlogits = at::empty_like(dwt);
    const gpu::RouteGrad p{f32(saved[0]),
                           f32(saved[1]),
                           f32(dwt),
                           f32(dlogits),
                           static_cast<int>(dwt.size(1)),
                           static_cast<float>(context->saved_data["factor"].toDouble())};
    gpu::route_bwd(p, dwt.size(0), kStream);
    return {dlogits, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

class SwigluFn : public Function<SwigluFn> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& gu, const Tensor& wt, int64_t width,
                        double limit) {
    const int64_t n = gu.size(0);
    const Tensor h = at::empty({n, gu.size(1) / 2}, gu.options());
    const gpu::Swiglu p{bf(gu), f32(wt), static_cast<int>(wt.size(1)), static_cast<int>(width),
                        static_cast<float>(limit)};
    gpu::swiglu_fwd(p, bf(h), n, kStream);
    context->save_for_backward({gu, wt});
    context->saved_data["width"] = width;
    context->saved_data["limit"] = limit;
    return h;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor dh = grads[0].contiguous();
    const Tensor dgu = at::empty_like(saved[0]);
    const Tensor dwt = at::empty_like(saved[1]);
    const gpu::Swiglu p{bf(saved[0]), f32(saved[1]), static_cast<int>(dwt.size(1)),
                        static_cast<int>(context->saved_data["width"].toInt()),
                        static_cast<float>(context->saved_data["limit"].toDouble())};
    gpu::swiglu_bwd(p, {bf(dh), bf(dgu), f32(dwt)}, dh.size(0), kStream);
    return {dgu, dwt, Tensor(), Tensor()};
  }
};

// The loss is the root of the graph, so its gradients are made in the forward pass, chunk by chunk.
class CrossEntropyFn : public Function<CrossEntropyFn> {
 public:
  static constexpr int64_t kChunk = 16384;

  static variable_list forward(AutogradContext* context, const Tensor& x, const Tensor& head,
                               const Tensor& target, const Tensor& weight, bool grad) {
    const int64_t n = x.size(0);
    const Tensor nll = floats(x, {n});
    Tensor dx = grad ? at::empty_like(x) : Tensor();
    Tensor dhead = grad ? at::zeros_like(head, head.options().dtype(at::kFloat)) : Tensor();
    for (int64_t at = 0; at < n; at += kChunk) {
      const int64_t rows = std::min(kChunk, n - at);
      const Tensor part = x.narrow(0, at, rows);
      const Tensor logits = at::mm(part, head.t());
      const gpu::CrossEntropy p{bf(logits), target.const_data_ptr<int64_t>() + at, f32(weight) + at,
                                f32(nll) + at, static_cast<int>(head.size(0))};
      gpu::cross_entropy(p, rows, kStream);
      if (grad) {
        Tensor out = dx.narrow(0, at, rows);
        at::mm_out(out, logits, head);
        dhead += at::mm(logits.t(), part);
      }
    }
    if (grad) {
      context->saved_data["dx"] = dx;
      context->saved_data["dhead"] = dhead.to(head.scalar_type());
    }
    context->mark_non_differentiable({nll});
    return {(nll * weight).sum(), nll};
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const Tensor dx = context->saved_data["dx"].toTensor();
    const Tensor dhead = context->saved_data["dhead"].toTensor();
    const Tensor scale = grads[0].to(dx.scalar_type());
    return {dx * scale, dhead * scale, Tensor(), Tensor(), Tensor()};
  }
};

struct Geometry {
  int64_t batch, length, window, blocks, heads, dim, entries;
  gpu::Attend core{};

  Geometry(const Tensor& q, const Tensor& sink, const Tensor& mask, const AttendShape& shape) {
    length = shape.length;
    batch = q.size(0) / length;
    window = shape.window;
    blocks = batch * length / window;
    heads = q.size(1);
    dim = q.size(2);
    entries = shape.entries;
    FATHOM_CHECK(length % window == 0 && entries % 8 == 0 && window <= 128);
    core.sink = f32(sink);
    core.mask = bytes(mask);
    core.tokens = q.size(0);
    core.length = static_cast<int>(length);
    core.heads = static_cast<int>(heads);
    core.dim = static_cast<int>(dim);
    core.window = static_cast<int>(window);
    core.entries = static_cast<int>(entries);
    core.ratio = static_cast<int>(shape.ratio);
    core.scale = static_cast<float>(shape.scale);
  }

  // Rows of a token block, and of a whole sequence.
  Tensor by_block(const Tensor& t) const { return t.view({blocks, window * heads, dim}); }
  Tensor by_sequence(const Tensor& t) const { return t.view({batch, length * heads, dim}); }

  // [blocks][2 window][dim]: the rows of the block before, then those of the block.
  Tensor window_pairs(const Tensor& kv) const {
    const int64_t per = length / window;
    const Tensor rows = kv.contiguous().view({batch, per, window, dim});
    const Tensor none = at::zeros({batch, 1, window, dim}, kv.options());
    const Tensor before = per > 1 ? at::cat({none, rows.narrow(1, 0, per - 1)}, 1) : none;
    return at::cat({before, rows}, 2).view({blocks, 2 * window, dim});
  }
  Tensor window_fold(const Tensor& pairs) const {
    const int64_t per = length / window;
    const Tensor split = pairs.view({batch, per, 2, window, dim});
    Tensor rows = split.select(2, 1).clone();
    if (per > 1) {
      rows.narrow(1, 0, per - 1) += split.select(2, 0).narrow(1, 1, per - 1);
    }
    return rows.view({batch * length, dim});
  }
};

class AttendFn : public Function<AttendFn> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& q, const Tensor& kv,
                               const Tensor& global, const Tensor& sink, const Tensor& mask,
                               const AttendShape& shape) {
    const Geometry g(q, sink, mask, shape);
    const Tensor pairs = g.window_pairs(kv);
    const Tensor sw = at::bmm(g.by_block(q), pairs.transpose(1, 2));
    Tensor sg;
    Tensor entries;
    if (g.entries > 0) {
      entries = global.contiguous().view({g.batch, g.entries, g.dim});
      sg = at::bmm(g.by_sequence(q), entries.transpose(1, 2));
    }
    const Tensor lse = floats(q, {q.size(0), g.heads});
    gpu::attend_softmax(g.core, bf(sw), g.entries > 0 ? bf(sg) : nullptr, f32(lse), kStream);
    Tensor out = at::bmm(sw, pairs).view(q.sizes());
    if (g.entries > 0) {
      g.by_sequence(out).baddbmm_(sg, entries);
    }
    context->save_for_backward({q, sink, out});
    auto& data = context->saved_data;
    data["pairs"] = pairs;
    data["mask"] = mask;
    data["lse"] = lse;
    data["pw"] = sw;
    if (g.entries > 0) {
      data["pg"] = sg;
      data["entries"] = entries;
    }
    data["shape"] = std::vector<int64_t>{shape.length, shape.window, shape.ratio, shape.entries};
    data["scale"] = shape.scale;
    context->mark_non_differentiable({lse});
    return {out, lse};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const auto sizes = data["shape"].toIntVector();
    const AttendShape shape{sizes[0], sizes[1], sizes[2], sizes[3], data["scale"].toDouble()};
    const Tensor mask = data["mask"].toTensor();
    const Tensor& q = saved[0];
    const Geometry g(q, saved[1], mask, shape);
    const Tensor dout = grads[0].contiguous();
    const Tensor pairs = data["pairs"].toTensor();
    const Tensor pw = data["pw"].toTensor();
    const Tensor dsw = at::bmm(g.by_block(dout), pairs.transpose(1, 2));
    Tensor pg;
    Tensor entries;
    Tensor dsg;
    if (g.entries > 0) {
      pg = data["pg"].toTensor();
      entries = data["entries"].toTensor();
      dsg = at::bmm(g.by_sequence(dout), entries.transpose(1, 2));
    }
    const Tensor dsink = floats(q, {q.size(0), g.heads});
    gpu::AttendGrad p{};
    p.pw = bf(pw);
    p.pg = g.entries > 0 ? bf(pg) : nullptr;
    p.out = bf(saved[2]);
    p.dout = bf(dout);
    p.lse = f32(data["lse"].toTensor());
    p.dpw = bf(dsw);
    p.dpg = g.entries > 0 ? bf(dsg) : nullptr;
    p.dsink = f32(dsink);
    gpu::attend_softmax_bwd(g.core, p, kStream);

    Tensor dq = at::bmm(dsw, pairs).view(q.sizes());
    Tensor dpairs = at::bmm(dsw.transpose(1, 2), g.by_block(q));
    dpairs.baddbmm_(pw.transpose(1, 2), g.by_block(dout));
    Tensor dglobal;
    if (g.entries > 0) {
      g.by_sequence(dq).baddbmm_(dsg, entries);
      dglobal = at::bmm(dsg.transpose(1, 2), g.by_sequence(q));
      dglobal.baddbmm_(pg.transpose(1, 2), g.by_sequence(dout));
      dglobal = dglobal.view({g.batch * g.entries, g.dim});
    }
    return {dq, g.window_fold(dpairs), dglobal, dsink.sum(0), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor linear_f32(const Tensor& x, const Tensor& w) { return LinearF32Fn::apply(x, w); }

Tensor rms_norm(const Tensor& x, const Tensor& w) { return RmsNormFn::apply(x, w); }

Tensor rotate(const Tensor& x, const Placement& where, bool inverse) {
  return RotateFn::apply(x, where, inverse);
}

HcOut hc_read(const Tensor& streams, const Tensor& pre, const HcParams& params,
              const Tensor& norm) {
  const auto out =
      HcReadFn::apply(streams, pre, params, norm, params.fn, params.scale, params.base);
  return {out[0], out[1], out[2], out[3]};
}

Tensor hc_collapse(const Tensor& streams, const Tensor& pre, const Tensor& norm) {
  return HcCollapseFn::apply(streams, pre, norm);
}

Tensor hc_write(const Tensor& streams, const Tensor& y, const Tensor& mix) {
  return HcWriteFn::apply(streams, y.contiguous(), mix);
}

Tensor engram_add(const Tensor& streams, const Tensor& kv, const Tensor& gain) {
  return EngramFn::apply(streams, kv.contiguous(), gain);
}

Tensor route(const Tensor& logits, const Tensor& bias, int64_t top, double factor, Tensor& load) {
  return RouteFn::apply(logits, bias, top, factor, load);
}

Tensor swiglu(const Tensor& gu, const Tensor& wt, int64_t width, double limit) {
  return SwigluFn::apply(gu, wt, width, limit);
}

Tensor cross_entropy(const Tensor& x, const Tensor& head, const Tensor& target,
                     const Tensor& weight, Tensor& nll) {
  const bool grad = at::GradMode::is_enabled() && (x.requires_grad() || head.requires_grad());
  const auto out = CrossEntropyFn::apply(x, head, target, weight, grad);
  nll = out[1];
  return out[0];
}

AttendOut attend(const Tensor& q, const Tensor& kv, const GlobalKeys& global, const Tensor& sink,
                 const AttendShape& shape) {
  const Tensor none = at::empty({0}, q.options());
  const auto out = AttendFn::apply(q.contiguous(), kv, global.rows.defined() ? global.rows : none,
                                   sink, global.selected.defined() ? global.selected : none, shape);
  return {out[0], out[1]};
}

Selection index_select(const Tensor& q, const Tensor& k, const Tensor& weights, const Tensor& pool,
                       const SelectShape& shape) {
  const at::NoGradGuard no_grad;
  const int64_t n = q.size(0);
  const int64_t batch = n / shape.length;
  const int64_t entries = k.size(0) / batch;
  FATHOM_CHECK(entries % 8 == 0 && entries <= 4096);
  FATHOM_CHECK(shape.pool_blocks == 0 || shape.block_size == 8);
  const Tensor keys = k.contiguous().view({batch, entries, k.size(1)});
  const Tensor rows = q.contiguous().view({batch, shape.length * q.size(1), q.size(2)});
  const Tensor dots = at::bmm(rows, keys.transpose(1, 2));
  const Tensor w = weights.contiguous();
  const auto options = q.options().dtype(at::kByte);
  Selection out;
  out.entries = at::empty({n, entries / 8}, options);
  out.pool = shape.pool_blocks > 0 ? at::empty({n, entries / 8}, options) : Tensor();
  gpu::IndexSelect p{};
  p.dots = bf(dots);
  p.weights = f32(w);
  p.pool = bytes(pool);
  p.selected = bytes(out.entries);
  p.new_pool = bytes(out.pool);
  p.tokens = n;
  p.length = static_cast<int>(shape.length);
  p.heads = static_cast<int>(q.size(1));
  p.entries = static_cast<int>(entries);
  p.ratio = static_cast<int>(shape.ratio);
  p.top = static_cast<int>(shape.top);
  p.blocks = static_cast<int>(shape.pool_blocks);
  gpu::index_select(p, kStream);
  return out;
}

}  // namespace fathom::train::fused
