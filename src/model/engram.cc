// Hashed n-gram memory of one layer. spec/backbone.md 3.2, spec/engram.md.

#include "model/engram_hash.h"
#include "model/model.h"
#include "model/stream.h"

namespace fathom {

void Model::engram(const LayerPlan& plan, Stream& stream, const Step& step, Ops& ops,
                   Workspace& ws) const {
  const EngramWeights& w = weights_.layers[static_cast<size_t>(plan.layer)].engram;
  const int64_t n_rows = step.n_rows();
  expand(stream, ops);
  ops.set_scope(layer_scope(plan.layer));
  ops.show("engram.in", stream.residual);
  const Workspace::EngramTable& table = ws.engram_tables[static_cast<size_t>(plan.engram)];
  const int64_t pad = config_.text_config.engram_pad_token_id;
  ops.engram_rows({.rows = first(ws.engram_rows, n_rows),
                   .lookback = first(ws.lookback, n_rows),
                   .primes = table.primes,
                   .offsets = table.offsets,
                   .multipliers = table.multipliers,
                   .pad = token_map_[static_cast<size_t>(pad)]});
  ops.show("engram.rows", first(ws.engram_rows, n_rows));

  const Activation lookup = first(ws.engram_lookup, n_rows);
  const Tensor kv = first(ws.engram_kv, n_rows);
  ops.engram_gather(
      {.out = lookup, .rows = first(ws.engram_rows, n_rows), .table = w.table, .scales = w.scales});
  ops.linear({.out = kv, .x = lookup, .w = w.wkv});
  ops.show("engram.wkv", kv);
  ops.engram_mix({.residual = stream.residual,
                  .kv = kv,
                  .q_weight = w.q_weight,
                  .k_weight = w.k_weight,
                  .dead = step.has_images() ? first(ws.image_mask, n_rows) : Tensor{},
                  .eps = static_cast<float>(config_.text_config.rms_norm_eps)});
  ops.show("engram.out", stream.residual);
}

void Model::write_lookback(const Step& step, Ops& ops, Workspace& ws) const {
  const TextConfig& text = config_.text_config;
  if (text.engram_layer_ids.empty()) return;
  std::vector<int32_t> ids;
  for (const SequenceStep& sequence : step.sequences()) {
    const auto canonical = [&](int64_t position) {
      if (position < 0) return kDeadId;
      const auto p = static_cast<size_t>(position);
      if (!sequence.image.empty() && sequence.image[p] != 0) return kDeadId;
      return token_map_[static_cast<size_t>(sequence.tokens[p])];
    };
    for (int64_t i = 0; i < sequence.rows.n_rows; ++i) {
      const int64_t position = sequence.rows.first_position + i;
      for (int64_t back = 0; back < text.engram_max_ngram_size; ++back) {
        ids.push_back(canonical(position - back));
      }
    }
  }
  ops.memory().write(ws.lookback.data, ids.data(), first(ws.lookback, step.n_rows()).bytes());
}

}  // namespace fathom
