// Hashed n-gram memory of one layer. spec/backbone.md 3.2, spec/engram.md.

#include <algorithm>

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
  hash_rows(engram_hashes_[static_cast<size_t>(plan.engram)], step, ops, ws);

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

void Model::hash_rows(const EngramHash& hash, const Step& step, Ops& ops, Workspace& ws) const {
  const TextConfig& text = config_.text_config;
  const int32_t pad = token_map_[static_cast<size_t>(text.engram_pad_token_id)];
  std::vector<int32_t> lookback(static_cast<size_t>(text.engram_max_ngram_size));
  const auto n_columns = static_cast<size_t>(hash.n_columns());
  std::vector<int64_t> rows(static_cast<size_t>(step.n_rows()) * n_columns);
  std::span<int64_t> out(rows);
  for (const SequenceStep& sequence : step.sequences()) {
    const auto canonical = [&](int64_t position) {
      if (position < 0) return kDeadId;
      const auto p = static_cast<size_t>(position);
      if (!sequence.image.empty() && sequence.image[p] != 0) return kDeadId;
      return token_map_[static_cast<size_t>(sequence.tokens[p])];
    };
    for (int64_t i = 0; i < sequence.rows.n_rows; ++i, out = out.subspan(n_columns)) {
      const int64_t position = sequence.rows.first_position + i;
      for (size_t back = 0; back < lookback.size(); ++back) {
        lookback[back] = canonical(position - static_cast<int64_t>(back));
      }
      engram_rows(out.first(n_columns), hash, lookback, pad);
    }
  }
  ops.memory().write(ws.engram_rows.data, rows.data(),
                     first(ws.engram_rows, step.n_rows()).bytes());
  ops.show("engram.rows", first(ws.engram_rows, step.n_rows()));
}

}  // namespace fathom
