#include "ops/ops.h"

namespace fathom {
namespace {

void check(const Tensor& t, DType dtype, std::initializer_list<int64_t> shape) {
  FATHOM_CHECK(t.data != nullptr || t.elements() == 0);
  FATHOM_CHECK(t.dtype == dtype);
  FATHOM_CHECK(has_shape(t, shape));
}

void check(const Activation& x, int64_t n_rows, int64_t width) {
  check(x.bf16, DType::kBf16, {n_rows, width});
  check(x.codes, DType::kE4m3, {n_rows, width});
  check(x.scales, DType::kE8m0, {n_rows, width / 32});
  FATHOM_CHECK(width % 32 == 0);
}

void check(const Weight& w, int64_t out, int64_t in) {
  FATHOM_CHECK(w.out() == out);
  FATHOM_CHECK(w.in() == in);
  switch (w.format) {
    case WeightFormat::kBf16:
      return check(w.data, DType::kBf16, {out, in});
    case WeightFormat::kF32:
      return check(w.data, DType::kF32, {out, in});
    case WeightFormat::kFp8Block32:
      check(w.data, DType::kE4m3, {out, in});
      return check(w.scale, DType::kE8m0, {(out + 31) / 32, (in + 31) / 32});
    case WeightFormat::kFp4Row32:
      check(w.data, DType::kI8, {out, in / 2});
      return check(w.scale, DType::kE8m0, {out, in / 32});
  }
}

void check(const ExpertWeights& e, int64_t hidden) {
  const int64_t width = e.w1.out();
  check(e.w1, width, hidden);
  check(e.w3, width, hidden);
  check(e.w2, hidden, width);
}

void check(const WindowRows& kv, int64_t n_rows, int64_t head_dim) {
  check(kv.payload, DType::kE4m3, {n_rows, head_dim});
  check(kv.scales, DType::kE8m0, {n_rows, head_dim / 32});
}

void check(const Rope& rope, int64_t n_rows) {
  const int64_t half = rope.inv_freq.dim(0);
  check(rope.inv_freq, DType::kF32, {half});
  check(rope.cos, DType::kF32, {n_rows, half});
  check(rope.sin, DType::kF32, {n_rows, half});
}

void check_blocks(const KvView& view, const Rows& rows) {
  FATHOM_CHECK(view.base != nullptr);
  FATHOM_CHECK(static_cast<int64_t>(view.blocks.size()) == rows.n_sequences());
}

void check_slots(const SlotView& view, const Rows& rows) {
  FATHOM_CHECK(view.base != nullptr);
  FATHOM_CHECK(static_cast<int64_t>(view.slots.size()) == rows.n_sequences());
}

}  // namespace

void Ops::show_on_host(const char* name, const Tensor& tensor) {
  if (tensor.device == Device::kCpu) return probe_->value(scope_ + name, tensor);
  FATHOM_CHECK(tensor.is_dense());
  const Buffer buffer(tensor.bytes());
  Tensor host = tensor;
  host.data = buffer.data();
  host.device = Device::kCpu;
  memory().read(host.data, tensor.data, tensor.bytes());
  probe_->value(scope_ + name, host);
  memory().write(tensor.data, host.data, tensor.bytes());
}

void Ops::rope(const RopeArgs& args) {
  check({args.inv_freq, args.cos, args.sin}, args.rows->n_rows());
  do_rope(args);
}

void Ops::embed(const EmbedArgs& args) {
  const int64_t n_rows = args.ids.dim(0);
  FATHOM_CHECK(args.residual.rank == 3);
  check(args.ids, DType::kI32, {n_rows});
  check(args.table, DType::kBf16, {args.table.dim(0), args.residual.dim(2)});
  check(args.residual, DType::kBf16, {n_rows, args.residual.dim(1), args.residual.dim(2)});
  do_embed(args);
}

void Ops::gather_rows(const GatherRowsArgs& args) {
  FATHOM_CHECK(args.out.dtype == args.in.dtype);
  FATHOM_CHECK(args.out.is_dense() && args.in.is_dense());
  FATHOM_CHECK(args.out.dim(0) == static_cast<int64_t>(args.rows.size()));
  FATHOM_CHECK(args.out.stride[0] == args.in.stride[0]);
  for (const int64_t row : args.rows) FATHOM_CHECK(0 <= row && row < args.in.dim(0));
  do_gather_rows(args);
}

void Ops::mhc_step(const MhcStepArgs& args) {
  FATHOM_CHECK(args.residual.rank == 3);
  const int64_t n_rows = args.residual.dim(0);
  const int64_t n = args.residual.dim(1);
  const int64_t hidden = args.residual.dim(2);
  check(args.residual, DType::kBf16, {n_rows, n, hidden});
  if (!args.y.empty()) {
    check(args.y, DType::kBf16, {n_rows, hidden});
    check(args.expand.post, DType::kF32, {n_rows, n});
    check(args.expand.comb, DType::kF32, {n_rows, n, n});
  }
  if (!args.site.fn.empty()) {
    check(args.site.fn, DType::kF32, {(2 + n) * n, n * hidden});
    check(args.site.scale, DType::kF32, {3});
    check(args.site.base, DType::kF32, {(2 + n) * n});
    check(args.predicted.pre, DType::kF32, {n_rows, n});
    check(args.predicted.post, DType::kF32, {n_rows, n});
    check(args.predicted.comb, DType::kF32, {n_rows, n, n});
  }
  if (!args.norm.empty()) {
    check(args.pre, DType::kF32, {n_rows, n});
    check(args.norm, DType::kBf16, {hidden});
    check(args.x, n_rows, hidden);
  }
  do_mhc_step(args);
}

void Ops::rms_norm(const RmsNormArgs& args) {
  const int64_t n_rows = args.x.dim(0);
  const int64_t width = args.x.dim(1);
  check(args.x, DType::kBf16, {n_rows, width});
  check(args.weight, DType::kBf16, {width});
  check(args.out, n_rows, width);
  do_rms_norm(args);
}

void Ops::linear(const LinearArgs& args) {
  FATHOM_CHECK(args.out.dtype == DType::kBf16 || args.out.dtype == DType::kF32);
  check(args.out, args.out.dtype, {args.x.n_rows(), args.w.out()});
  check(args.x, args.x.n_rows(), args.w.in());
  check(args.w, args.w.out(), args.x.width());
  do_linear(args);
}

void Ops::grouped_linear(const GroupedLinearArgs& args) {
  const int64_t n_rows = args.x.dim(0);
  FATHOM_CHECK(args.groups > 0 && args.w.out() % args.groups == 0);
  check(args.x, DType::kBf16, {n_rows, args.groups * args.w.in()});
  check(args.out, n_rows, args.w.out());
  check(args.w, args.w.out(), args.w.in());
  do_grouped_linear(args);
}

void Ops::window_kv(const WindowKvArgs& args) {
  const int64_t n_rows = args.kv.dim(0);
  const int64_t head_dim = args.kv.dim(1);
  check(args.kv, DType::kBf16, {n_rows, head_dim});
  check(args.weight, DType::kBf16, {head_dim});
  check(args.out, n_rows, head_dim);
  check(args.rope, n_rows);
  do_window_kv(args);
}

void Ops::window_commit(const WindowCommitArgs& args) {
  check_slots(args.window, *args.rows);
  FATHOM_CHECK(args.window.stream.role == KvRole::kWindow);
  check(args.rows_kv, args.rows->n_rows(), args.window.stream.payload_bytes);
  do_window_commit(args);
}

void Ops::compress(const CompressArgs& args) {
  const int64_t n_rows = args.rows->n_rows();
  const int64_t hidden = args.x.width();
  const int64_t head_dim = args.wkv.out();
  const int64_t index_dim = args.wk.out();
  check_blocks(args.main, *args.rows);
  check_blocks(args.index, *args.rows);
  FATHOM_CHECK(args.main.stream.role == KvRole::kMain);
  FATHOM_CHECK(args.index.stream.role == KvRole::kIndex);
  FATHOM_CHECK(args.main.stream.ratio == args.index.stream.ratio);
  FATHOM_CHECK(2 * args.main.stream.payload_bytes == head_dim);
  FATHOM_CHECK(2 * args.index.stream.payload_bytes == index_dim);
  check(args.x, n_rows, hidden);
  check(args.wkv, head_dim, hidden);
  check(args.norm, DType::kBf16, {head_dim});
  check(args.wk, index_dim, head_dim);
  check(args.k_norm, DType::kBf16, {index_dim});
  FATHOM_CHECK((args.main.stream.ratio > 1) == !args.wgate.empty());
  if (!args.wgate.empty()) {
    check(args.wgate, head_dim, hidden);
    check_slots(args.remainder, *args.rows);
    FATHOM_CHECK(args.remainder.stream.payload_bytes == 4 * head_dim);
  }
  do_compress(args);
}

void Ops::index_select(const IndexSelectArgs& args) {
  const int64_t n_rows = args.rows->n_rows();
  FATHOM_CHECK(args.n_heads > 0 && args.block_size > 0);
  check_blocks(args.keys, *args.rows);
  FATHOM_CHECK(args.keys.stream.role == KvRole::kIndex);
  check(args.q, DType::kBf16, {n_rows, args.n_heads * 2 * args.keys.stream.payload_bytes});
  check(args.weights, DType::kBf16, {n_rows, args.n_heads});
  check(args.topk, DType::kI32, {n_rows, args.topk.dim(1)});
  check(args.rope, n_rows);
  if (!args.pool_out.empty()) check(args.pool_out, DType::kI32, {n_rows, args.pool_out.dim(1)});
  if (!args.pool_in.empty()) check(args.pool_in, DType::kI32, {n_rows, args.pool_in.dim(1)});
  do_index_select(args);
}

void Ops::attend(const AttendArgs& args) {
  const int64_t n_rows = args.rows->n_rows();
  const int64_t n_heads = args.sink.dim(0);
  const int64_t head_dim = args.window.stream.payload_bytes;
  check_slots(args.window, *args.rows);
  FATHOM_CHECK(args.window.stream.role == KvRole::kWindow);
  check(args.q, DType::kBf16, {n_rows, n_heads * head_dim});
  check(args.o, DType::kBf16, {n_rows, n_heads * head_dim});
  check(args.sink, DType::kF32, {n_heads});
  check(args.rows_kv, n_rows, head_dim);
  check(args.rope, n_rows);
  if (!args.topk.empty()) {
    check(args.topk, DType::kI32, {n_rows, args.topk.dim(1)});
    check_blocks(args.global, *args.rows);
    FATHOM_CHECK(2 * args.global.stream.payload_bytes == head_dim);
  }
  do_attend(args);
}

void Ops::route(const RouteArgs& args) {
  const int64_t n_rows = args.x.n_rows();
  const int64_t n_experts = args.gate.out();
  check(args.x, n_rows, args.gate.in());
  check(args.gate, n_experts, args.x.width());
  check(args.bias, DType::kF32, {n_experts});
  check(args.ids, DType::kI32, {n_rows, args.ids.dim(1)});
  check(args.weights, DType::kF32, {n_rows, args.ids.dim(1)});
  FATHOM_CHECK(args.ids.dim(1) <= n_experts);
  if (!args.image_mask.empty()) {
    check(args.image_mask, DType::kU8, {n_rows});
    check(args.bias_image, DType::kF32, {n_experts});
  }
  do_route(args);
}

void Ops::experts(const ExpertsArgs& args) {
  const int64_t n_rows = args.x.n_rows();
  const int64_t hidden = args.x.width();
  check(args.y, DType::kBf16, {n_rows, hidden});
  check(args.x, n_rows, hidden);
  check(args.ids, DType::kI32, {n_rows, args.ids.dim(1)});
  check(args.weights, DType::kF32, {n_rows, args.ids.dim(1)});
  for (const ExpertWeights& expert : args.experts) check(expert, hidden);
  check(args.shared, hidden);
  do_experts(args);
}

void Ops::engram_rows(const EngramRowsArgs& args) {
  const int64_t n_rows = args.rows.dim(0);
  const int64_t columns = args.rows.dim(1);
  const int64_t n_back = args.lookback.dim(1);
  FATHOM_CHECK(n_back > 1 && columns % (n_back - 1) == 0);
  check(args.rows, DType::kI64, {n_rows, columns});
  check(args.lookback, DType::kI32, {n_rows, n_back});
  check(args.primes, DType::kI64, {columns});
  check(args.offsets, DType::kI64, {columns});
  check(args.multipliers, DType::kI64, {n_back});
  do_engram_rows(args);
}

void Ops::greedy(const GreedyArgs& args) {
  const int64_t n_rows = args.logits.dim(0);
  check(args.logits, DType::kF32, {n_rows, args.logits.dim(1)});
  check(args.ids, DType::kI32, {n_rows});
  FATHOM_CHECK(args.logits.dim(1) > 0);
  if (!args.lookback.empty()) {
    check(args.lookback, DType::kI32, {n_rows, args.lookback.dim(1)});
    check(args.canonical, DType::kI32, {args.logits.dim(1)});
  }
  if (!args.log.empty()) {
    check(args.log, DType::kI32, {n_rows, args.log.dim(1)});
    check(args.count, DType::kI64, {n_rows});
  }
  do_greedy(args);
}

void Ops::engram_gather(const EngramGatherArgs& args) {
  const int64_t n_rows = args.rows.dim(0);
  const int64_t width = args.table.dim(1);
  check(args.rows, DType::kI64, {n_rows, args.rows.dim(1)});
  check(args.table, DType::kE4m3, {args.table.dim(0), width});
  check(args.scales, DType::kE8m0, {args.table.dim(0), width / 32});
  check(args.out, n_rows, args.rows.dim(1) * width);
  do_engram_gather(args);
}

void Ops::engram_mix(const EngramMixArgs& args) {
  FATHOM_CHECK(args.residual.rank == 3);
  const int64_t n_rows = args.residual.dim(0);
  const int64_t n = args.residual.dim(1);
  const int64_t hidden = args.residual.dim(2);
  check(args.residual, DType::kBf16, {n_rows, n, hidden});
  check(args.kv, DType::kBf16, {n_rows, (n + 1) * hidden});
  check(args.q_weight, DType::kBf16, {n, hidden});
  check(args.k_weight, DType::kBf16, {n, hidden});
  if (!args.dead.empty()) check(args.dead, DType::kU8, {n_rows});
  do_engram_mix(args);
}

}  // namespace fathom
