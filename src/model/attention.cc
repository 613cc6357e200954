// Attention of one layer. spec/backbone.md 3.3 to 3.9.

#include "model/model.h"

namespace fathom {

void Model::attention(const LayerPlan& plan, const Step& step, Ops& ops, Workspace& ws) const {
  const TextConfig& text = config_.text_config;
  const LayerWeights& w = weights_.layers[static_cast<size_t>(plan.layer)];
  const int64_t n_rows = step.n_rows();
  const auto eps = static_cast<float>(text.rms_norm_eps);
  const Activation x = first(ws.x, n_rows);
  const Activation qr = first(ws.qr, n_rows);
  const Rope rope = first(plan.yarn ? ws.rope_yarn : ws.rope_plain, n_rows);
  const WindowRows window_rows = first(ws.window_rows, n_rows);
  const SlotView window = step.slot(KvRole::kWindow, plan.layer);
  ops.show("attn.x", x.bf16);

  const Tensor wq_a = first(ws.wq_a, n_rows);
  ops.linear({.out = wq_a, .x = x, .w = w.wq_a});
  ops.show("attn.wq_a", wq_a);
  const Tensor kv = first(ws.kv, n_rows);
  ops.linear({.out = kv, .x = x, .w = w.wkv});
  ops.show("attn.wkv", kv);
  ops.window_kv({.out = window_rows, .kv = kv, .weight = w.kv_norm, .rope = rope, .eps = eps});

  ops.rms_norm({.out = qr, .x = wq_a, .weight = w.q_norm, .eps = eps});
  ops.show("attn.qr", qr.bf16);
  ops.linear({.out = first(ws.q, n_rows), .x = qr, .w = w.wq_b});
  ops.show("attn.wq_b", first(ws.q, n_rows));

  // The first decoder layer's entries are already there: project_decoder_kv wrote them.
  if (plan.owns_kv() && plan.layer != plan_.n_encoder_layers) compress(plan, step, ops, ws);
  if (plan.owns_indexer()) select(plan, step, ops, ws);

  const Tensor o = first(ws.o, n_rows);
  AttendArgs args = {.o = o,
                     .q = first(ws.q, n_rows),
                     .sink = w.sink,
                     .window = window,
                     .rows_kv = window_rows,
                     .rope = rope,
                     .rows = &step.rows()};
  if (plan.ratio > 0) {
    args.global = step.kv(KvRole::kMain, plan.kv_source);
    args.topk = first(ws.topk, n_rows);
  }
  ops.attend(args);
  ops.window_commit({.window = window, .rows_kv = window_rows, .rows = &step.rows()});

  const Activation o_lora = first(ws.o_lora, n_rows);
  ops.grouped_linear({.out = o_lora, .x = o, .w = w.wo_a, .groups = text.o_groups});
  ops.show("attn.o_lora", o_lora.bf16);
  const Tensor y = first(ws.y, n_rows);
  ops.linear({.out = y, .x = o_lora, .w = w.wo_b});
  ops.show("attn.out", y);
}

void Model::compress(const LayerPlan& plan, const Step& step, Ops& ops, Workspace& ws) const {
  const CompressorWeights& w = weights_.layers[static_cast<size_t>(plan.layer)].compressor;
  CompressArgs args = {.main = step.kv(KvRole::kMain, plan.layer),
                       .index = step.kv(KvRole::kIndex, plan.layer),
                       .x = first(ws.x, step.n_rows()),
                       .wkv = w.wkv,
                       .wgate = w.wgate,
                       .norm = w.norm,
                       .wk = w.wk,
                       .k_norm = w.k_norm,
                       .inv_freq = (plan.yarn ? ws.rope_yarn : ws.rope_plain).inv_freq,
                       .rows = &step.rows(),
                       .eps = static_cast<float>(config_.text_config.rms_norm_eps)};
  if (plan.ratio > 1) args.remainder = step.slot(KvRole::kRemainder, plan.layer);
  ops.compress(args);
}

void Model::select(const LayerPlan& plan, const Step& step, Ops& ops, Workspace& ws) const {
  const TextConfig& text = config_.text_config;
  const IndexerWeights& w = weights_.layers[static_cast<size_t>(plan.layer)].indexer;
  const int64_t n_rows = step.n_rows();
  const Tensor q = first(ws.index_q, n_rows);
  const Tensor weights = first(ws.index_weights, n_rows);
  const Tensor pool = first(ws.pool, n_rows);
  ops.linear({.out = q, .x = first(ws.qr, n_rows), .w = w.wq_b});
  ops.linear({.out = weights, .x = first(ws.x, n_rows), .w = w.weights_proj});
  ops.show("attn.index_wproj", weights);
  IndexSelectArgs args = {.topk = first(ws.topk, n_rows),
                          .pool_out = plan.pool == PoolUse::kSource ? pool : Tensor{},
                          .pool_in = plan.pool == PoolUse::kRestricted ? pool : Tensor{},
                          .q = q,
                          .weights = weights,
                          .keys = step.kv(KvRole::kIndex, plan.kv_source),
                          .rope = first(plan.yarn ? ws.rope_yarn : ws.rope_plain, n_rows),
                          .rows = &step.rows(),
                          .n_heads = text.index_n_heads,
                          .scores = options_.index_scores};
  if (plan.pool != PoolUse::kNone) args.block_size = text.candidate_block_size;
  ops.index_select(args);
}

}  // namespace fathom
