#include "ops/cuda/cuda_ops.h"

#include <cmath>

#include "ops/cuda/copies.h"
#include "ops/cuda/dense_decode.h"
#include "ops/cuda/dense_prefill.h"
#include "ops/cuda/engram.h"
#include "ops/cuda/greedy.h"
#include "ops/cuda/mhc.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/row_kernels.h"
#include "ops/cuda/value_product.h"
#include "tensor/codecs.h"

// Words over rows alone. Each is a list of launches; what a probe may see is shown between them.

namespace fathom {
namespace {

using cuda::launch_norm;

// Places in Scratch.
constexpr size_t kFirst = 0;
constexpr size_t kSecond = 1;
constexpr size_t kStaged = 10;   // of every word with dense products
constexpr size_t kMhcSums = 11;  // lives beside other words

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

CudaOps::CudaOps(std::unique_ptr<cuda::Memory> memory, Numerics numerics)
    : memory_(std::move(memory)),
      numerics_(numerics),
      scratch_(*memory_),
      tables_(*memory_),
      recording_(*memory_, tables_, scratch_),
      fast_(*memory_) {
  memory_->check(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking), "stream");
  memory_->check(cudaEventCreateWithFlags(&forked_, cudaEventDisableTiming), "event");
  memory_->check(cudaEventCreateWithFlags(&joined_, cudaEventDisableTiming), "event");
}

CudaOps::~CudaOps() {
  if (side_ != nullptr) cudaStreamSynchronize(side_);
  if (joined_ != nullptr) cudaEventDestroy(joined_);
  if (forked_ != nullptr) cudaEventDestroy(forked_);
  if (side_ != nullptr) cudaStreamDestroy(side_);
}

Result<void> CudaOps::prepare_grouped(const Weight& w) {
  return numerics_ != Numerics::kExact ? fast_.add_values(w) : Result<void>();
}

Result<void> CudaOps::prepare(const Weight& w) {
  if (w.format == WeightFormat::kBf16) return prepare_grouped(w);
  return numerics_ != Numerics::kExact ? fast_.add(w) : Result<void>();
}

Result<void> CudaOps::prepare(std::span<const ExpertWeights> experts, const ExpertWeights& shared) {
  return numerics_ != Numerics::kExact ? fast_.add(experts, shared) : Result<void>();
}

cudaStream_t CudaOps::fork() {
  memory_->check(cudaEventRecord(forked_, stream()), "fork");
  memory_->check(cudaStreamWaitEvent(side_, forked_, 0), "fork");
  side_busy_ = true;
  return side_;
}

bool CudaOps::join() {
  if (!side_busy_) return false;
  side_busy_ = false;
  memory_->check(cudaEventRecord(joined_, side_), "join");
  memory_->check(cudaStreamWaitEvent(stream(), joined_, 0), "join");
  return true;
}

Tensor CudaOps::made(void* data, DType dtype, std::initializer_list<int64_t> shape) const {
  Tensor t = Tensor::dense(data, dtype, shape);
  t.device = Device::kCuda;
  return t;
}

int64_t* CudaOps::staged(size_t place, std::span<const int64_t> values) {
  if (recording_.active()) {
    return static_cast<int64_t*>(recording_.keep(std::as_bytes(values)));
  }
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
  const bool joined = join();
  if (memory_->failed()) return;
  const int64_t row_bytes = args.in.stride[0] * dtype_bytes(args.in.dtype);
  cuda::launch_copy_rows({.out = bytes(args.out),
                          .in = bytes(args.in),
                          .index64 = index,
                          .n_rows = static_cast<int64_t>(args.rows.size()),
                          .row_bytes = row_bytes,
                          .in_stride = row_bytes,
                          .out_stride = row_bytes,
                          .plain_edge = joined},
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
  const bool joined = join();
  const bool normed = !args.norm.empty();
  cuda::MhcArgs kernel = {.residual = bf16(args.residual),
                          .y = bf16(args.y),
                          .post = f32(args.expand.post),
                          .comb = f32(args.expand.comb),
                          .fn = f32(args.site.fn),
                          .scale = f32(args.site.scale),
                          .base = f32(args.site.base),
                          .new_pre = f32(args.predicted.pre),
                          .new_post = f32(args.predicted.post),
                          .new_comb = f32(args.predicted.comb),
                          .pre = f32(args.pre),
                          .n_rows = n_rows,
                          .n = n,
                          .hidden = hidden,
                          .iters = args.sinkhorn_iters,
                          .hc_eps = args.hc_eps,
                          .norm_eps = args.norm_eps,
                          .plain_edge = joined,
                          .many = trial()};
  if (probing() || !cuda::mhc_rows_fit(kernel)) return mhc_in_parts(args, kernel);
  kernel.sums = scratch_.get<float>(kMhcSums, n_rows * (n_mix + 1));
  if (memory_->failed()) return;
  if (normed) {
    kernel.norm = bf16(args.norm);
    kernel.x = bf16(args.x.bf16);
    kernel.codes = bytes(args.x.codes);
    kernel.scales = bytes(args.x.scales);
    kernel.x_stride = args.x.bf16.stride[0];
    kernel.code_stride = args.x.codes.stride[0];
    kernel.scale_stride = args.x.scales.stride[0];
  }
  if (kernel.y != nullptr || normed) cuda::launch_mhc_rows(kernel, stream());
  if (kernel.fn != nullptr) cuda::launch_mhc_coefficients_of(kernel, fork());
  done("mhc_step");
}

// One kernel a mechanism, with what a probe may see between them.
void CudaOps::mhc_in_parts(const MhcStepArgs& args, const cuda::MhcArgs& whole) {
  const int64_t n_rows = whole.n_rows;
  const int64_t n_mix = (2 + whole.n) * whole.n;
  cuda::MhcArgs kernel = whole;
  kernel.mix = scratch_.get<float>(kFirst, n_rows * n_mix);
  kernel.u = scratch_.get<uint16_t>(kSecond, n_rows * whole.hidden);
  if (memory_->failed()) return;
  if (!args.y.empty()) cuda::launch_mhc_expand(kernel, stream());
  if (!args.site.fn.empty()) {
    cuda::launch_mhc_predict(kernel, stream());
    show("mix", made(kernel.mix, DType::kF32, {n_rows, n_mix}));
    cuda::launch_mhc_coefficients(kernel, stream());
    show("pre", args.predicted.pre);
    show("post", args.predicted.post);
    show("comb", args.predicted.comb);
  }
  if (!args.norm.empty()) {
    cuda::launch_mhc_collapse(kernel, stream());
    show("u", made(kernel.u, DType::kBf16, {n_rows, whole.hidden}));
    launch_norm(norm_rows(args.x, kernel.u, args.norm, args.norm_eps), stream());
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

bool CudaOps::wide(int64_t n_rows) const { return fast() && n_rows >= cuda::kDensePrefillRows; }

const uint8_t* CudaOps::staged_rows(const uint8_t* x, const uint8_t* x_scales, int m, int k) {
  auto* pieces = scratch_.get<uint8_t>(kStaged, static_cast<int64_t>(cuda::staged_bytes(m, k)));
  if (pieces == nullptr) return nullptr;
  memory_->check(cuda::stage_rows({x, x_scales, m, k, pieces}, stream()), "rows");
  return pieces;
}

void CudaOps::dense_fast(const cuda::DenseDecode& p, const char* word) {
  if (!wide(p.m)) return memory_->check(cuda::dense_decode(p, stream()), word);
  const uint8_t* pieces = staged_rows(p.x, p.x_scales, p.m, p.k);
  if (pieces == nullptr) return;
  memory_->check(cuda::dense_prefill({p.units, pieces, p.out, p.m, p.n, p.k}, stream()), word);
}

void CudaOps::dense_pair_fast(const cuda::DensePairDecode& p, const char* word) {
  const cuda::DenseDecode& rows = p.product;
  if (!wide(rows.m)) return memory_->check(cuda::dense_pair_decode(p, stream()), word);
  const uint8_t* pieces = staged_rows(rows.x, rows.x_scales, rows.m, rows.k);
  if (pieces == nullptr) return;
  memory_->check(
      cuda::dense_pair_prefill({.product = {rows.units, pieces, nullptr, rows.m, rows.n, rows.k},
                                .codes = p.codes,
                                .scales = p.scales,
                                .limit = p.limit},
                               stream()),
      word);
}

bool CudaOps::linear_of_values(const Tensor& out, const Tensor& x, const Weight& w,
                               int64_t groups) {
  const uint8_t* units = fast() ? fast_.values(w) : nullptr;
  const int64_t group_out = w.out() / groups;
  if (units == nullptr || x.dim(0) == 0 || group_out % cuda::kPackedRows != 0) return false;
  const bool fp32 = out.dtype == DType::kF32;
  cuda::ValueProduct product = {.units = units,
                                .x = bf16(x),
                                .x_stride = x.stride[0],
                                .out = fp32 ? f32(out) : nullptr,
                                .out_bf16 = fp32 ? nullptr : bf16(out),
                                .out_stride = out.stride[0],
                                .m = static_cast<int>(x.dim(0)),
                                .n = static_cast<int>(w.out()),
                                .k = static_cast<int>(w.in()),
                                .groups = static_cast<int>(groups)};
  product.pieces = scratch_.get<uint8_t>(
      kStaged, static_cast<int64_t>(cuda::value_piece_bytes(product.m, groups * w.in())));
  if (memory_->failed()) return true;
  memory_->check(cuda::value_product(product, stream()), "linear");
  return true;
}

void CudaOps::do_linear(const LinearArgs& args) {
  if (memory_->failed()) return;
  if (linear_of_values(args.out, args.x.bf16, args.w, 1)) return done("linear");
  const bool fp32 = args.out.dtype == DType::kF32;
  const uint8_t* units = fp32 || !fast() ? nullptr : fast_.dense(args.w);
  if (units != nullptr && args.out.is_dense() && args.x.codes.is_dense() &&
      args.x.scales.is_dense() && args.x.n_rows() > 0) {
    const cuda::DenseDecode product = {.units = units,
                                       .x = bytes(args.x.codes),
                                       .x_scales = bytes(args.x.scales),
                                       .out = bf16(args.out),
                                       .m = static_cast<int>(args.x.n_rows()),
                                       .n = static_cast<int>(args.w.out()),
                                       .k = static_cast<int>(args.w.in())};
    dense_fast(product, "linear");
    return done("linear");
  }
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
  if (!linear_of_values(args.out.bf16, args.x, args.w, args.groups)) {
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
  }
  cuda::launch_quantize(quantize_rows(args.out), stream());
  done("grouped_linear");
}

void CudaOps::do_window_kv(const WindowKvArgs& args) {
  const int64_t n_rows = args.kv.dim(0);
  const int64_t width = args.kv.dim(1);
  auto* rows = scratch_.get<uint16_t>(kFirst, n_rows * width);
  if (memory_->failed()) return;
  if (!probing()) {
    cuda::launch_window_rows({.codes = bytes(args.out.payload),
                              .scales = bytes(args.out.scales),
                              .code_stride = args.out.payload.stride[0],
                              .scale_stride = args.out.scales.stride[0],
                              .x = bf16(args.kv),
                              .x_stride = args.kv.stride[0],
                              .weight = bf16(args.weight),
                              .cos = f32(args.rope.cos),
                              .sin = f32(args.rope.sin),
                              .half = args.rope.inv_freq.dim(0),
                              .n_rows = n_rows,
                              .width = width,
                              .eps = args.eps},
                             stream());
    return done("window_kv");
  }
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
  // Values of the format stay as they are; what a probe wrote enters the format here.
  cuda::launch_dequantize(quantize, stream());
  show("attn.kv", shown);
  cuda::launch_quantize(quantize, stream());
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

void CudaOps::do_engram_rows(const EngramRowsArgs& args) {
  if (memory_->failed()) return;
  const int64_t n_back = args.lookback.dim(1);
  cuda::launch_engram_rows(
      {.rows = static_cast<int64_t*>(args.rows.data),
       .lookback = static_cast<const int32_t*>(args.lookback.data),
       .columns = {.primes = static_cast<const int64_t*>(args.primes.data),
                   .offsets = static_cast<const int64_t*>(args.offsets.data),
                   .multipliers = static_cast<const int64_t*>(args.multipliers.data),
                   .n_back = n_back,
                   .n_heads = args.rows.dim(1) / (n_back - 1),
                   .pad = args.pad},
       .n_rows = args.rows.dim(0),
       .n_columns = args.rows.dim(1)},
      stream());
  done("engram_rows");
}

void CudaOps::do_greedy(const GreedyArgs& args) {
  const int64_t n_rows = args.logits.dim(0);
  if (n_rows == 0) return;
  auto* best = scratch_.get<uint64_t>(kFirst, n_rows * cuda::kGreedyParts);
  if (memory_->failed()) return;
  cuda::launch_greedy({.ids = static_cast<int32_t*>(args.ids.data),
                       .logits = f32(args.logits),
                       .logit_stride = args.logits.stride[0],
                       .lookback = static_cast<int32_t*>(args.lookback.data),
                       .canonical = static_cast<const int32_t*>(args.canonical.data),
                       .log = static_cast<int32_t*>(args.log.data),
                       .count = static_cast<int64_t*>(args.count.data),
                       .best = best,
                       .n_rows = n_rows,
                       .vocab = args.logits.dim(1),
                       .n_back = args.lookback.empty() ? 0 : args.lookback.dim(1),
                       .n_log = args.log.empty() ? 0 : args.log.dim(1)},
                      stream());
  done("greedy");
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
  const bool joined = join();
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
      .inverse_root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(hidden))),
      .plain_edge = joined};
  cuda::launch_engram_gate(kernel, stream());
  show("engram.gate", made(gates, DType::kF32, {n_rows, n}));
  cuda::launch_engram_mix(kernel, stream());
  done("engram_mix");
}

}  // namespace fathom
