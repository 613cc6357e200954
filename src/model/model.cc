#include "model/model.h"

#include <algorithm>
#include <numeric>

#include "model/stream.h"

namespace fathom {
namespace {

Result<std::vector<int32_t>> checked_token_map(const TextConfig& text, std::vector<int32_t> map) {
  if (text.engram_layer_ids.empty()) return map;
  if (map.empty()) {
    if (text.engram_compressed_vocab_size != text.vocab_size) {
      return invalid("engram token map: wanted one from the tokenizer, since " +
                     std::to_string(text.engram_compressed_vocab_size) +
                     " canonical ids stand for " + std::to_string(text.vocab_size) +
                     " tokens, found none");
    }
    map.resize(static_cast<size_t>(text.vocab_size));
    std::iota(map.begin(), map.end(), 0);
  }
  if (static_cast<int64_t>(map.size()) != text.vocab_size) {
    return invalid("engram token map: wanted " + std::to_string(text.vocab_size) +
                   " tokens, found " + std::to_string(map.size()));
  }
  const int64_t n_canonical = *std::ranges::max_element(map) + int64_t{1};
  if (n_canonical != text.engram_compressed_vocab_size) {
    return invalid("engram token map: wanted engram_compressed_vocab_size " +
                   std::to_string(text.engram_compressed_vocab_size) + " canonical ids, found " +
                   std::to_string(n_canonical));
  }
  return map;
}

}  // namespace

Result<Model> Model::make(const ModelConfig& config, const Checkpoint& checkpoint,
                          std::vector<int32_t> token_map, const ModelOptions& options) {
  FATHOM_ASSIGN_OR_RETURN(token_map, checked_token_map(config.text_config, std::move(token_map)));
  FATHOM_ASSIGN_OR_RETURN(KvSpec kv_spec, KvSpec::make(make_plan(config).kv));
  FATHOM_ASSIGN_OR_RETURN(WeightMemory memory,
                          WeightMemory::make(checkpoint, options.memory, options.progress));
  return Model(config, std::move(kv_spec), std::move(memory), std::move(token_map), options);
}

Model::Model(ModelConfig config, KvSpec kv_spec, WeightMemory memory,
             std::vector<int32_t> token_map, const ModelOptions& options)
    : config_(std::move(config)),
      plan_(make_plan(config_)),
      kv_spec_(std::move(kv_spec)),
      weights_(plan_, config_.text_config.n_routed_experts, std::move(memory)),
      token_map_(std::move(token_map)),
      options_(options) {}

void Model::prepare(const Step& step, Ops& ops, Workspace& ws) const {
  const int64_t n_rows = step.n_rows();
  FATHOM_CHECK(n_rows <= ws.limits().max_rows);
  std::vector<int32_t> ids;
  std::vector<uint8_t> image_mask;
  for (const SequenceStep& sequence : step.sequences()) {
    const auto begin = static_cast<size_t>(sequence.rows.first_position);
    for (size_t p = begin; p < begin + static_cast<size_t>(sequence.rows.n_rows); ++p) {
      const int32_t id = sequence.tokens[p];
      FATHOM_CHECK(0 <= id && id < config_.text_config.vocab_size);
      ids.push_back(id);
      image_mask.push_back(sequence.image.empty() ? 0 : sequence.image[p]);
    }
  }
  ops.memory().write(ws.ids.data, ids.data(), first(ws.ids, n_rows).bytes());
  write_lookback(step, ops, ws);
  ops.memory().write(ws.image_mask.data, image_mask.data(), first(ws.image_mask, n_rows).bytes());
  for (const Rope& rope : {first(ws.rope_plain, n_rows), first(ws.rope_yarn, n_rows)}) {
    ops.rope({.cos = rope.cos, .sin = rope.sin, .inv_freq = rope.inv_freq, .rows = &step.rows()});
  }
}

Result<void> Model::prepare(Ops& ops) const {
  for (const LayerWeights& w : weights_.layers) {
    for (const Weight* one : {&w.wq_a, &w.wq_b, &w.wkv, &w.wo_b, &w.indexer.wq_b, &w.engram.wkv}) {
      if (!one->empty()) FATHOM_RETURN_IF_ERROR(ops.prepare(*one));
    }
    FATHOM_RETURN_IF_ERROR(ops.prepare_grouped(w.wo_a));
    FATHOM_RETURN_IF_ERROR(ops.prepare(w.experts, w.shared));
  }
  return ops.prepare(weights_.head);
}

Boundary Model::encode(const Step& step, Ops& ops, Workspace& ws) const {
  const int64_t n_rows = step.n_rows();
  prepare(step, ops, ws);
  Stream stream = {.residual = first(ws.residual, n_rows), .pre = first(ws.first_pre, n_rows)};
  ops.embed({.residual = stream.residual, .ids = first(ws.ids, n_rows), .table = weights_.embed});
  ops.set_scope("L00.");
  ops.show("in", stream.residual);
  for (int layer = 0; layer < plan_.n_encoder_layers; ++layer) {
    run_layer(layer, stream, step, ops, ws);
  }
  expand(stream, ops);
  return {.residual = stream.residual, .pre = stream.pre};
}

void Model::project_decoder_kv(const Step& step, const Boundary& boundary, Ops& ops,
                               Workspace& ws) const {
  if (!has_decoder()) return;
  const LayerPlan& plan = plan_.layers[static_cast<size_t>(plan_.n_encoder_layers)];
  ops.set_scope(layer_scope(plan.layer));
  // Only collapse and norm: the coefficients of this site are predicted where the decoder runs.
  ops.mhc_step({.residual = boundary.residual,
                .x = first(ws.x, step.n_rows()),
                .pre = boundary.pre,
                .norm = weights_.layers[static_cast<size_t>(plan.layer)].attn_norm,
                .norm_eps = static_cast<float>(config_.text_config.rms_norm_eps)});
  compress(plan, step, ops, ws);
}

Tensor Model::decode(const Step& step, const Boundary& boundary,
                     std::span<const int64_t> logit_rows, Ops& ops, Workspace& ws) const {
  const auto n_logits = static_cast<int64_t>(logit_rows.size());
  FATHOM_CHECK(n_logits <= ws.limits().max_logit_rows);
  prepare(step, ops, ws);
  Stream stream = {.residual = boundary.residual, .pre = boundary.pre};
  for (int layer = plan_.n_encoder_layers; layer < n_layers(); ++layer) {
    run_layer(layer, stream, step, ops, ws);
  }
  ops.set_scope("head.");
  site(stream, nullptr, weights_.norm, ops, ws);
  const Activation x = first(ws.x, step.n_rows());
  ops.show("x", x.bf16);
  const Activation head_x = first(ws.head_x, n_logits);
  ops.gather_rows({.out = head_x.bf16, .in = x.bf16, .rows = logit_rows});
  ops.gather_rows({.out = head_x.codes, .in = x.codes, .rows = logit_rows});
  ops.gather_rows({.out = head_x.scales, .in = x.scales, .rows = logit_rows});
  const Tensor logits = first(ws.logits, n_logits);
  ops.linear({.out = logits, .x = head_x, .w = weights_.head});
  return logits;
}

// spec/backbone.md 3.1, with the pre-mix of one site consumed at the next.
void Model::run_layer(int layer, Stream& stream, const Step& step, Ops& ops, Workspace& ws) const {
  const LayerPlan& plan = plan_.layers[static_cast<size_t>(layer)];
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  if (plan.engram >= 0) engram(plan, stream, step, ops, ws);

  const std::string scope = layer_scope(layer);
  ops.set_scope(scope + "hc_attn.");
  stream.predicted = first(ws.hc_attn, step.n_rows());
  site(stream, &w.hc_attn, w.attn_norm, ops, ws);
  ops.set_scope(scope);
  attention(plan, step, ops, ws);
  stream.add(first(ws.y, step.n_rows()), scope + "mid");

  ops.set_scope(scope + "hc_ffn.");
  stream.predicted = first(ws.hc_ffn, step.n_rows());
  site(stream, &w.hc_ffn, w.ffn_norm, ops, ws);
  ops.set_scope(scope);
  moe(plan, step, ops, ws);
  stream.add(first(ws.y, step.n_rows()), scope + "out");
}

// One hyper-connection site: adds what the last sub-layer made, predicts this site's coefficients
// and leaves the next sub-layer's input in ws.x.
void Model::site(Stream& stream, const MhcSite* predict, Tensor norm, Ops& ops,
                 Workspace& ws) const {
  const TextConfig& text = config_.text_config;
  if (ops.probing()) expand(stream, ops);
  ops.mhc_step({.residual = stream.residual,
                .predicted = stream.predicted,
                .x = first(ws.x, stream.residual.dim(0)),
                .y = stream.y,
                .expand = stream.coefficients,
                .site = predict == nullptr ? MhcSite{} : *predict,
                .pre = stream.pre,
                .norm = norm,
                .sinkhorn_iters = static_cast<int>(text.hc_sinkhorn_iters),
                .hc_eps = static_cast<float>(text.hc_eps),
                .norm_eps = static_cast<float>(text.rms_norm_eps)});
  stream.y = {};
  stream.coefficients = stream.predicted;
  stream.pre = stream.predicted.pre;
}

void Model::expand(Stream& stream, Ops& ops) const {
  if (stream.y.empty()) return;
  ops.mhc_step({.residual = stream.residual, .y = stream.y, .expand = stream.coefficients});
  stream.y = {};
  if (!ops.probing()) return;
  const std::string scope = ops.scope();
  ops.set_scope("");
  ops.show(stream.name.c_str(), stream.residual);
  ops.set_scope(scope);
}

}  // namespace fathom
