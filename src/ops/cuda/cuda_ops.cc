#include "ops/cuda/cuda_ops.h"

#include <cmath>

#include "ops/cuda/copies.h"
#include "ops/cuda/engram.h"
#include "ops/cuda/mhc.h"
#include "ops/cuda/row_kernels.h"
#include "tensor/codecs.h"

// Words over rows alone. Each is a list of launches; what a probe may see is shown between them.

namespace fathom {
namespace {

using cuda::launch_norm;

// Places in Scratch.
constexpr size_t kFirst = 0;
constexpr size_t kSecond = 1;

uint16_t* bf16(const Tensor& t) { return static_cast<uint16_t*>(t.data); }
uint8_t* bytes(const Tensor& t) { return static_cast<uint8_t*>(t.data); }
float* f32(const Tensor& t) { return static_cast<float*>(t.data); }

// y = RMSNorm(x) as an activation.
cuda::NormRows norm_rows(const Activation& out, const uint16_t* x, const Tensor& weight,
                         float eps) {
  return {.y = bf16(out.bf16),
          .y_stride = out.bf16.stride[0],
          .codes = bytes(out.codes),
          .scales = bytes(out.scales),
          .code_stride = out.codes.stride[0],
          .scale_stride = out.scales.stride[0],
          .x = x,
          .x_stride = out.width(),
          .weight = bf16(weight),
          .n_rows = out.n_rows(),
          .width = out.width(),
          .eps = eps};
}

cuda::QuantizeRows quantize_rows(const Activation& x) {
  return {.codes = bytes(x.codes),
          .scales = bytes(x.scales),
          .code_stride = x.codes.stride[0],
          .scale_stride = x.scales.stride[0],
          .values = bf16(x.bf16),
          .stride = x.bf16.stride[0],
          .n_rows = x.n_rows(),
          .width = x.width()};
}

}  // namespace

CudaOps::CudaOps(std::unique_ptr<cuda::Memory> memory)
    : memory_(std::move(memory)), scratch_(*memory_), tables_(*memory_) {}

CudaOps::~CudaOps() = default;

Tensor CudaOps::made(void* data, DType dtype, std::initializer_list<int64_t> shape) const {
  Tensor t = Tensor::dense(data, dtype, shape);
  t.device = Device::kCuda;
  return t;
}

const int64_t* CudaOps::staged(size_t place, std::span<const int64_t> values) {
  auto* copy = scratch_.get<int64_t>(place, static_cast<int64_t>(values.size()));
  if (copy != nullptr) {
    memory_->write(copy, values.data(), static_cast<int64_t>(values.size_bytes()));
  }
  return copy;
}

void CudaOps::do_rope(const RopeArgs& args) {
  const cuda::RowTable rows = tables_.rows(*args.rows);
  if (memory_->failed()) return;
  cuda::launch_rotation({.cos = f32(args.cos),
                         .sin = f32(args.sin),
                         .position = rows.position,
                         .inv_freq = f32(args.inv_freq),
                         .n = rows.n_rows,
                         .half = args.inv_freq.dim(0)},
                        stream());
  done("rope");
}

void CudaOps::do_embed(const EmbedArgs& args) {
  if (memory_->failed()) return;
  const int64_t row_bytes = args.residual.dim(2) * dtype_bytes(DType::kBf16);
  cuda::launch_copy_rows({.out = bytes(args.residual),
                          .in = bytes(args.table),
                          .index32 = static_cast<const int32_t*>(args.ids.data),
                          .n_rows = args.ids.dim(0),
                          .row_bytes = row_bytes,
                          .in_stride = row_bytes,
                          .out_stride = args.residual.stride[0] * dtype_bytes(DType::kBf16),
                          .copies = args.residual.dim(1)},
                         stream());
  done("embed");
}

void CudaOps::do_gather_rows(const GatherRowsArgs& args) {
  if (args.rows.empty()) return;
  const int64_t* index = staged(kFirst, args.rows);
  if (memory_->failed()) return;
  const int64_t row_bytes = args.in.stride[0] * dtype_bytes(args.in.dtype);
  cuda::launch_copy_rows({.out = bytes(args.out),
                          .in = bytes(args.in),
                          .index64 = index,
                          .n_rows = static_cast<int64_t>(args.rows.size()),
                          .row_bytes = row_bytes,
                          .in_stride = row_bytes,
                          .out_stride = row_bytes},
                         stream());
  done("gather_rows");
}

void CudaOps::do_mhc_step(const MhcStepArgs& args) {
  const int64_t n_rows = args.residual.dim(0);
  const int64_t n = args.residual.dim(1);
  const int64_t hidden = args.residual.dim(2);
  const int64_t n_mix = (2 + n) * n;
  FATHOM_CHECK(n <= cuda::kMaxStreams);
  FATHOM_CHECK(hidden % 32 == 0);
  if (n_rows == 0) return;
  auto* mix = scratch_.get<float>(kFirst, n_rows * n_mix);
  auto* u = scratch_.get<uint16_t>(kSecond, n_rows * hidden);
  if (memory_->failed()) return;
  const cuda::MhcArgs kernel = {.residual = bf16(args.residual),
                                .y = bf16(args.y),
                                .post = f32(args.expand.post),
                                .comb = f32(args.expand.comb),
                                .fn = f32(args.site.fn),
                                .scale = f32(args.site.scale),
                                .base = f32(args.site.base),
                                .mix = mix,
                                .new_pre = f32(args.predicted.pre),
                                .new_post = f32(args.predicted.post),
                                .new_comb = f32(args.predicted.comb),
                                .pre = f32(args.pre),
                                .u = u,
                                .n_rows = n_rows,
                                .n = n,
                                .hidden = hidden,
                                .iters = args.sinkhorn_iters,
                                .hc_eps = args.hc_eps,
                                .norm_eps = args.norm_eps};
  if (!args.y.empty()) cuda::launch_mhc_expand(kernel, stream());
  if (!args.site.fn.empty()) {
    cuda::launch_mhc_predict(kernel, stream());
    show("mix", made(mix, DType::kF32, {n_rows, n_mix}));
    cuda::launch_mhc_coefficients(kernel, stream());
    show("pre", args.predicted.pre);
    show("post", args.predicted.post);
    show("comb", args.predicted.comb);
  }
  if (!args.norm.empty()) {
    cuda::launch_mhc_collapse(kernel, stream());
    show("u", made(u, DType::kBf16, {n_rows, hidden}));
    launch_norm(norm_rows(args.x, u, args.norm, args.norm_eps), stream());
  }
  done("mhc_step");
}

void CudaOps::do_rms_norm(const RmsNormArgs& args) {
  if (memory_->failed()) return;
  cuda::NormRows kernel = norm_rows(args.out, bf16(args.x), args.weight, args.eps);
  kernel.x_stride = args.x.stride[0];
  launch_norm(kernel, stream());
  done("rms_norm");
}

void CudaOps::do_linear(const LinearArgs& args) {
  if (memory_->failed()) return;
  const bool fp32 = args.out.dtype == DType::kF32;
  cuda::launch_product({.out = fp32 ? f32(args.out) : nullptr,
                        .out_bf16 = fp32 ? nullptr : bf16(args.out),
                        .out_stride = args.out.stride[0],
                        .x = cuda::product_rows(args.x),
                        .w = cuda::product_weight(args.w),
                        .n_rows = args.x.n_rows(),
                        .n_out = args.w.out(),
                        .in = args.w.in()},
                       stream());
  done("linear");
}

void CudaOps::do_grouped_linear(const GroupedLinearArgs& args) {
  if (memory_->failed()) return;
  cuda::launch_product(
      {.out_bf16 = bf16(args.out.bf16),
       .out_stride = args.out.bf16.stride[0],
       .x = {.bf16 = bf16(args.x), .bf16_stride = args.x.stride[0], .as_bf16 = true},
       .w = cuda::product_weight(args.w),
       .n_rows = args.x.dim(0),
       .n_out = args.w.out(),
       .in = args.w.in(),
       .groups = args.groups},
      stream());
  cuda::launch_quantize(quantize_rows(args.out), stream());
  done("grouped_linear");
}

void CudaOps::do_window_kv(const WindowKvArgs& args) {
  const int64_t n_rows = args.kv.dim(0);
  const int64_t width = args.kv.dim(1);
  auto* rows = scratch_.get<uint16_t>(kFirst, n_rows * width);
  if (memory_->failed()) return;
  const Tensor shown = made(rows, DType::kBf16, {n_rows, width});
  launch_norm({.y = rows,
               .y_stride = width,
               .x = bf16(args.kv),
               .x_stride = args.kv.stride[0],
               .weight = bf16(args.weight),
               .n_rows = n_rows,
               .width = width,
               .eps = args.eps},
              stream());
  show("attn.kv_norm", shown);
  cuda::launch_rotate({.y = rows,
                       .x = rows,
                       .cos = f32(args.rope.cos),
                       .sin = f32(args.rope.sin),
                       .n_rows = n_rows,
                       .width = width,
                       .half = args.rope.inv_freq.dim(0)},
                      stream());
  show("attn.kv_rope", shown);
  const cuda::QuantizeRows quantize = {.codes = bytes(args.out.payload),
                                       .scales = bytes(args.out.scales),
                                       .code_stride = args.out.payload.stride[0],
                                       .scale_stride = args.out.scales.stride[0],
                                       .values = rows,
                                       .stride = width,
                                       .n_rows = n_rows,
                                       .width = width};
  cuda::launch_quantize(quantize, stream());
  if (probing()) {
    // Values of the format stay as they are; what a probe wrote enters the format here.
    cuda::launch_dequantize(quantize, stream());
    show("attn.kv", shown);
    cuda::launch_quantize(quantize, stream());
  }
  done("window_kv");
}

void CudaOps::do_window_commit(const WindowCommitArgs& args) {
  const cuda::RowTable rows = tables_.rows(*args.rows);
  const cuda::SlotTable window = tables_.slots(args.window);
  if (memory_->failed() || rows.n_rows == 0) return;
  cuda::launch_commit({.window = window,
                       .codes = bytes(args.rows_kv.payload),
                       .scales = bytes(args.rows_kv.scales),
                       .rows = rows},
                      stream());
  done("window_commit");
}

void CudaOps::do_engram_gather(const EngramGatherArgs& args) {
  const int64_t n_rows = args.rows.dim(0);
  const int64_t columns = args.rows.dim(1);
  const int64_t width = args.table.dim(1);
  if (memory_->failed() || n_rows == 0) return;
  cuda::launch_engram_gather({.out = bf16(args.out.bf16),
                              .out_stride = args.out.bf16.stride[0],
                              .rows = static_cast<const int64_t*>(args.rows.data),
                              .row_stride = args.rows.stride[0],
                              .table = bytes(args.table),
                              .scales = bytes(args.scales),
                              .n_rows = n_rows,
                              .columns = columns,
                              .width = width},
                             stream());
  show("engram.lookup", made(args.out.bf16.data, DType::kBf16, {n_rows, columns, width}));
  cuda::launch_quantize(quantize_rows(args.out), stream());
  done("engram_gather");
}

void CudaOps::do_engram_mix(const EngramMixArgs& args) {
  const int64_t n_rows = args.residual.dim(0);
  const int64_t n = args.residual.dim(1);
  const int64_t hidden = args.residual.dim(2);
  if (n_rows == 0) return;
  auto* gates = scratch_.get<float>(kFirst, n_rows * n);
  if (memory_->failed()) return;
  const cuda::EngramMixKernelArgs kernel = {
      .residual = bf16(args.residual),
      .gates = gates,
      .kv = bf16(args.kv),
      .q_weight = bf16(args.q_weight),
      .k_weight = bf16(args.k_weight),
      .dead = static_cast<const uint8_t*>(args.dead.data),
      .n_rows = n_rows,
      .n = n,
      .hidden = hidden,
      .eps = args.eps,
      .inverse_root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(hidden)))};
  cuda::launch_engram_gate(kernel, stream());
  show("engram.gate", made(gates, DType::kF32, {n_rows, n}));
  cuda::launch_engram_mix(kernel, stream());
  done("engram_mix");
}

}  // namespace fathom
