#include "masked_forward.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "model/engram_hash.h"
#include "model/rope.h"

namespace fathom {
namespace {

constexpr int64_t kArenaBytes = int64_t{256} << 20;

class MaskedForward {
 public:
  MaskedForward(const Model& model, Ops& ops, std::span<const int32_t> token_map,
                std::span<const int32_t> tokens)
      : model_(model),
        text_(model.config().text_config),
        ops_(ops),
        token_map_(token_map),
        tokens_(tokens),
        hashes_(make_engram_hashes(text_)),
        blocks_(static_cast<size_t>(blocks_for(static_cast<int64_t>(tokens.size())))),
        entries_(static_cast<int64_t>(blocks_.size()) * model.kv_spec().block_bytes()),
        slot_(model.kv_spec().session_bytes()),
        arena_(Buffer(kArenaBytes)) {
    for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i] = static_cast<BlockId>(i);
    block_list_ = blocks_;
  }

  // Rows [definition.encoder_from, end) of the encoder, then of the decoder. Entries of groups that
  // end below the prefix are left as an earlier pass of this object made them.
  std::vector<float> run(const ReplayDefinition& d, int64_t end) {
    arena_.reset();
    prefix_ = d.prefix;
    first_ = d.encoder_from;
    n_ = end - first_;
    begin_rows();
    const auto n_layers = static_cast<int>(model_.plan().layers.size());
    for (int layer = 0; layer < n_layers; ++layer) {
      if (layer == model_.plan().n_encoder_layers) enter_decoder(layer, d.decoder_from);
      if (n_ == 0) return {};
      run_layer(layer);
    }
    const Activation x = activation(text_.hidden_size);
    collapse(x, model_.weights().norm);
    const Tensor logits = arena_.make(DType::kF32, {n_, text_.vocab_size});
    ops_.linear({.out = logits, .x = x, .w = model_.weights().head});
    return {logits.as<float>(), logits.as<float>() + logits.elements()};
  }

 private:
  Tensor bf16(int64_t width) { return arena_.make(DType::kBf16, {n_, width}); }
  Activation activation(int64_t width) { return Activation::make(arena_, n_, width); }
  float eps() const { return static_cast<float>(text_.rms_norm_eps); }

  void begin_rows() {
    const int64_t n = text_.hc_mult;
    const Tensor ids = arena_.make(DType::kI32, {n_});
    residual_ = arena_.make(DType::kBf16, {n_, n, text_.hidden_size});
    pre_ = arena_.make(DType::kF32, {n_, n});
    topk_ = arena_.make(DType::kI32, {n_, text_.index_topk});
    pool_ = arena_.make(DType::kI32, {n_, std::max<int64_t>(1, text_.candidate_topk_blocks)});
    for (int64_t i = 0; i < n_; ++i) {
      ids.as<int32_t>()[i] = tokens_[static_cast<size_t>(first_ + i)];
      for (int64_t s = 0; s < n; ++s) pre_.row<float>(i)[s] = s == 0 ? 1.0f : 0.0f;
    }
    ops_.embed({.residual = residual_, .ids = ids, .table = model_.weights().embed});
    plain_ = make_rope(false);
    yarn_ = make_rope(true);
  }

  Rope make_rope(bool yarn) {
    const std::vector<float> frequencies = rope_frequencies(text_, yarn);
    const auto half = static_cast<int64_t>(frequencies.size());
    const Rope rope = {.inv_freq = arena_.make(DType::kF32, {half}),
                       .cos = arena_.make(DType::kF32, {n_, half}),
                       .sin = arena_.make(DType::kF32, {n_, half})};
    std::ranges::copy(frequencies, rope.inv_freq.as<float>());
    const Rows rows({{.n_rows = n_, .first_position = first_}});
    ops_.rope({.cos = rope.cos, .sin = rope.sin, .inv_freq = rope.inv_freq, .rows = &rows});
    return rope;
  }

  // The decoder's entries of every row, then only the rows that it sees.
  void enter_decoder(int layer, int64_t decoder_from) {
    const int64_t mark = arena_.mark();
    const Activation x = activation(text_.hidden_size);
    collapse(x, weights(layer).attn_norm);
    write_entries(layer, x);
    arena_.release(mark);
    const int64_t dropped = std::min(n_, decoder_from - first_);
    residual_ = residual_.rows(dropped, n_);
    pre_ = pre_.rows(dropped, n_);
    topk_ = topk_.rows(dropped, n_);
    pool_ = pool_.rows(dropped, n_);
    for (Rope* rope : {&plain_, &yarn_}) {
      rope->cos = rope->cos.rows(dropped, n_);
      rope->sin = rope->sin.rows(dropped, n_);
    }
    first_ += dropped;
    n_ -= dropped;
  }

  const LayerWeights& weights(int layer) const {
    return model_.weights().layers[static_cast<size_t>(layer)];
  }
  const LayerPlan& plan(int layer) const {
    return model_.plan().layers[static_cast<size_t>(layer)];
  }
  const Rope& rope(int layer) const { return plan(layer).yarn ? yarn_ : plain_; }

  void collapse(const Activation& x, const Tensor& norm) {
    ops_.mhc_step({.residual = residual_, .x = x, .pre = pre_, .norm = norm, .norm_eps = eps()});
  }

  // spec/backbone.md 3.1
  void run_layer(int layer) {
    const int64_t mark = arena_.mark();
    const LayerWeights& w = weights(layer);
    if (plan(layer).engram >= 0) engram(layer);
    const Activation x = activation(text_.hidden_size);
    const Tensor y = bf16(text_.hidden_size);
    const MhcCoefficients attention_mix = predict(w.hc_attn);
    collapse(x, w.attn_norm);
    attention(layer, x, y);
    ops_.mhc_step({.residual = residual_, .y = y, .expand = attention_mix});
    const MhcCoefficients ffn_mix = predict(w.hc_ffn);
    keep_pre(attention_mix.pre);
    collapse(x, w.ffn_norm);
    experts(layer, x, y);
    ops_.mhc_step({.residual = residual_, .y = y, .expand = ffn_mix});
    keep_pre(ffn_mix.pre);
    arena_.release(mark);
  }

  void keep_pre(const Tensor& pre) {
    std::memcpy(pre_.data, pre.data, static_cast<size_t>(pre_.bytes()));
  }

  MhcCoefficients predict(const MhcSite& site) {
    const int64_t n = text_.hc_mult;
    const MhcCoefficients out = {.pre = arena_.make(DType::kF32, {n_, n}),
                                 .post = arena_.make(DType::kF32, {n_, n}),
                                 .comb = arena_.make(DType::kF32, {n_, n, n})};
    ops_.mhc_step({.residual = residual_,
                   .predicted = out,
                   .site = site,
                   .sinkhorn_iters = static_cast<int>(text_.hc_sinkhorn_iters),
                   .hc_eps = static_cast<float>(text_.hc_eps),
                   .norm_eps = eps()});
    return out;
  }

  void engram(int layer) {
    const EngramWeights& w = weights(layer).engram;
    const EngramHash& hash = hashes_[static_cast<size_t>(plan(layer).engram)];
    const Tensor rows = arena_.make(DType::kI64, {n_, hash.n_columns()});
    const int32_t pad = token_map_[static_cast<size_t>(text_.engram_pad_token_id)];
    std::vector<int32_t> lookback(static_cast<size_t>(text_.engram_max_ngram_size));
    for (int64_t i = 0; i < n_; ++i) {
      for (size_t back = 0; back < lookback.size(); ++back) {
        const int64_t p = first_ + i - static_cast<int64_t>(back);
        lookback[back] =
            p < 0 ? kDeadId : token_map_[static_cast<size_t>(tokens_[static_cast<size_t>(p)])];
      }
      engram_rows({rows.row<int64_t>(i), static_cast<size_t>(hash.n_columns())}, hash, lookback,
                  pad);
    }
    const Activation lookup = activation(hash.n_columns() * text_.engram_head_dim);
    const Tensor kv = bf16((text_.hc_mult + 1) * text_.hidden_size);
    ops_.engram_gather({.out = lookup, .rows = rows, .table = w.table, .scales = w.scales});
    ops_.linear({.out = kv, .x = lookup, .w = w.wkv});
    ops_.engram_mix({.residual = residual_,
                     .kv = kv,
                     .q_weight = w.q_weight,
                     .k_weight = w.k_weight,
                     .eps = eps()});
  }

  void experts(int layer, const Activation& x, const Tensor& y) {
    const LayerWeights& w = weights(layer);
    const Tensor ids = arena_.make(DType::kI32, {n_, text_.num_experts_per_tok});
    const Tensor scale = arena_.make(DType::kF32, {n_, text_.num_experts_per_tok});
    ops_.route({.ids = ids,
                .weights = scale,
                .x = x,
                .gate = w.gate,
                .bias = w.bias,
                .bias_image = w.bias_image,
                .scale = static_cast<float>(text_.routed_scaling_factor)});
    ops_.experts({.y = y,
                  .x = x,
                  .ids = ids,
                  .weights = scale,
                  .experts = w.experts,
                  .shared = w.shared,
                  .swiglu_limit = static_cast<float>(text_.swiglu_limit)});
  }

  KvView entries(KvRole role, int layer) {
    return {.base = reinterpret_cast<uint8_t*>(entries_.data()),
            .block_bytes = model_.kv_spec().block_bytes(),
            .blocks = {&block_list_, 1},
            .stream = model_.kv_spec().stream(role, layer)};
  }
  SlotView slot(KvRole role, int layer) {
    return {.base = reinterpret_cast<uint8_t*>(slot_.data()),
            .slot_bytes = slot_.bytes(),
            .slots = {&slot_id_, 1},
            .stream = model_.kv_spec().stream(role, layer)};
  }

  // One group at a time: those whose rows are all here and that do not end below the prefix.
  void write_entries(int layer, const Activation& x) {
    const CompressorWeights& w = weights(layer).compressor;
    const int64_t m = plan(layer).ratio;
    for (int64_t g = 0; (g + 1) * m <= first_ + n_; ++g) {
      if (g * m < first_ || (g + 1) * m - 1 < prefix_) continue;
      const Rows rows({{.n_rows = m, .first_position = g * m}});
      CompressArgs args = {.main = entries(KvRole::kMain, layer),
                           .index = entries(KvRole::kIndex, layer),
                           .x = x.rows(g * m - first_, (g + 1) * m - first_),
                           .wkv = w.wkv,
                           .wgate = w.wgate,
                           .norm = w.norm,
                           .wk = w.wk,
                           .k_norm = w.k_norm,
                           .inv_freq = rope(layer).inv_freq,
                           .rows = &rows,
                           .eps = eps()};
      if (m > 1) args.remainder = slot(KvRole::kRemainder, layer);
      ops_.compress(args);
    }
  }

  Rope rope_row(int layer, int64_t i) const {
    const Rope& all = rope(layer);
    return {.inv_freq = all.inv_freq, .cos = all.cos.rows(i, i + 1), .sin = all.sin.rows(i, i + 1)};
  }

  void select(int layer, const Activation& x, const Activation& qr) {
    const IndexerWeights& w = weights(layer).indexer;
    const Tensor q = bf16(text_.index_n_heads * text_.index_head_dim);
    const Tensor head_weights = bf16(text_.index_n_heads);
    ops_.linear({.out = q, .x = qr, .w = w.wq_b});
    ops_.linear({.out = head_weights, .x = x, .w = w.weights_proj});
    for (int64_t i = 0; i < n_; ++i) {
      const Rows row({{.n_rows = 1, .first_position = first_ + i}});
      const Tensor pool = pool_.rows(i, i + 1);
      ops_.index_select({.topk = topk_.rows(i, i + 1),
                         .pool_out = plan(layer).pool == PoolUse::kSource ? pool : Tensor{},
                         .pool_in = plan(layer).pool == PoolUse::kRestricted ? pool : Tensor{},
                         .q = q.rows(i, i + 1),
                         .weights = head_weights.rows(i, i + 1),
                         .keys = entries(KvRole::kIndex, plan(layer).kv_source),
                         .rope = rope_row(layer, i),
                         .rows = &row,
                         .n_heads = text_.index_n_heads,
                         .block_size = std::max<int64_t>(1, text_.candidate_block_size)});
    }
  }

  void attention(int layer, const Activation& x, const Tensor& y) {
    const LayerWeights& w = weights(layer);
    const Tensor wq_a = bf16(text_.q_lora_rank);
    const Activation qr = activation(text_.q_lora_rank);
    const Tensor q = bf16(text_.num_attention_heads * text_.head_dim);
    const Tensor o = bf16(text_.num_attention_heads * text_.head_dim);
    const Tensor kv = bf16(text_.head_dim);
    const WindowRows keys = {.payload = arena_.make(DType::kE4m3, {n_, text_.head_dim}),
                             .scales = arena_.make(DType::kE8m0, {n_, text_.head_dim / 32})};
    ops_.linear({.out = wq_a, .x = x, .w = w.wq_a});
    ops_.rms_norm({.out = qr, .x = wq_a, .weight = w.q_norm, .eps = eps()});
    ops_.linear({.out = q, .x = qr, .w = w.wq_b});
    ops_.linear({.out = kv, .x = x, .w = w.wkv});
    ops_.window_kv({.out = keys, .kv = kv, .weight = w.kv_norm, .rope = rope(layer), .eps = eps()});
    const bool entered = layer == model_.plan().n_encoder_layers;  // enter_decoder() wrote them
    if (plan(layer).owns_kv() && !entered) write_entries(layer, x);
    if (plan(layer).owns_indexer()) select(layer, x, qr);
    for (int64_t i = 0; i < n_; ++i)
      attend_row(layer, i, {q.rows(i, i + 1), o.rows(i, i + 1)}, keys);
    const Activation o_lora = activation(text_.o_groups * text_.o_lora_rank);
    ops_.grouped_linear({.out = o_lora, .x = o, .w = w.wo_a, .groups = text_.o_groups});
    ops_.linear({.out = y, .x = o_lora, .w = w.wo_b});
  }

  struct QueryRow {
    Tensor q;
    Tensor o;
  };

  // The keys that row i sees are laid out as if nothing else had ever been: a sequence that begins
  // with the first of them. Rotations are in the keys and tables already.
  void attend_row(int layer, int64_t i, const QueryRow& row, const WindowRows& keys) {
    const int64_t position = first_ + i;
    std::vector<int64_t> seen;  // rows of `keys`
    for (int64_t j = 0; j < n_; ++j) {
      const int64_t p = first_ + j;
      if (p <= position && position - p < text_.sliding_window) seen.push_back(j);
    }
    const SlotView window = slot(KvRole::kWindow, layer);
    const auto n_before = static_cast<int64_t>(seen.size()) - 1;
    for (int64_t t = 0; t < n_before; ++t) {
      const int64_t j = seen[static_cast<size_t>(t)];
      std::memcpy(window.payload(0, t), keys.payload.row<uint8_t>(j),
                  static_cast<size_t>(window.stream.payload_bytes));
      std::memcpy(window.scale(0, t), keys.scales.row<uint8_t>(j),
                  static_cast<size_t>(window.stream.scale_bytes));
    }
    const Rows rows({{.n_rows = 1, .first_position = n_before}});
    AttendArgs args = {
        .o = row.o,
        .q = row.q,
        .sink = weights(layer).sink,
        .window = window,
        .rows_kv = {.payload = keys.payload.rows(i, i + 1), .scales = keys.scales.rows(i, i + 1)},
        .rope = rope_row(layer, i),
        .rows = &rows};
    if (plan(layer).ratio > 0) {
      args.global = entries(KvRole::kMain, plan(layer).kv_source);
      args.topk = topk_.rows(i, i + 1);
    }
    ops_.attend(args);
  }

  const Model& model_;
  const TextConfig& text_;
  Ops& ops_;
  std::span<const int32_t> token_map_;
  std::span<const int32_t> tokens_;
  std::vector<EngramHash> hashes_;
  std::vector<BlockId> blocks_;
  std::span<const BlockId> block_list_;
  WindowId slot_id_ = {};
  Buffer entries_;
  Buffer slot_;
  Arena arena_;

  int64_t prefix_ = 0;
  int64_t first_ = 0;  // position of row 0
  int64_t n_ = 0;
  Tensor residual_;  // [n, streams, D]
  Tensor pre_;       // [n, streams]
  Tensor topk_;      // [n, K], of the last index source
  Tensor pool_;      // [n, P]
  Rope plain_;
  Rope yarn_;
};

}  // namespace

std::vector<float> masked_logits(const Model& model, Ops& ops, std::span<const int32_t> token_map,
                                 const ReplayDefinition& definition) {
  MaskedForward forward(model, ops, token_map, definition.tokens);
  // The prefix as it was computed once; no decoder row is needed.
  if (definition.prefix > 0) forward.run({.decoder_from = definition.prefix}, definition.prefix);
  return forward.run(definition, static_cast<int64_t>(definition.tokens.size()));
}

}  // namespace fathom
