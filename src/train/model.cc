#include "train/model.h"

#include <c10/core/GradMode.h>

#include <cmath>
#include <cstdio>

#include "base/check.h"
#include "train/canonical.h"
#include "train/quant.h"

namespace fathom::train {

namespace {

std::string layer_name(int64_t layer, const std::string& name) {
  char prefix[16];
  std::snprintf(prefix, sizeof prefix, "L%02d.", static_cast<int>(layer));
  return prefix + name;
}

constexpr int64_t kSample = 8;  // the indexer's loss looks at every 8th query

// Rows 7, 15, ... of each sequence of [N, ...] -> [batch, S, ...].
Tensor sampled(const Tensor& x, int64_t batch) {
  auto shape = x.sizes().vec();
  shape[0] /= batch;
  shape.insert(shape.begin(), batch);
  const Tensor rows = x.view(shape);
  return rows.slice(1, kSample - 1, rows.size(1), kSample);
}

}  // namespace

Model::Model(const ModelConfig& config, Params& params, const Tensor& map)
    : model_config_(config),
      config_(model_config_.text_config),
      params_(params),
      plans_(make_plan(config).layers),
      hashes_(make_engram_hashes(config_)) {
  const Tensor& master = params.master();
  const auto high = params.get("norm").scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  map_ = map.to(master.device());
  plain_table_ = rope_table(config_, false, config_.max_position_embeddings).to(high);
  scaled_table_ = rope_table(config_, true, config_.max_position_embeddings).to(high);
  plain_table_ = plain_table_.to(master.device());
  scaled_table_ = scaled_table_.to(master.device());
  const auto options = at::TensorOptions().device(master.device()).dtype(at::kFloat);
  route_bias_ = at::zeros({config_.num_hidden_layers, config_.n_routed_experts}, options);
  load_ = at::zeros_like(route_bias_);
}

void Model::show(const std::string& name, const Tensor& value) const {
  if (tap_) {
    tap_(layer_name(layer_, name), value);
  }
}

Tensor Model::quantised(const Tensor& x) const {
  return numerics_.activations || numerics_.exact ? fake_quant(x, Quant::kA8) : x;
}

Tensor Model::project(const Tensor& x, const char* name) const {
  return words_->apply_weight(quantised(x), weight(name));
}

Placement Model::place(const LayerPlan& plan, int64_t step) const {
  return {plan.ratio > 0 ? scaled_table_ : plain_table_, 0, step};
}

HcOut Model::site(const std::string& name, const char* norm, const Tensor& streams,
                  const Tensor& pre) const {
  const HcParams p{params_.get(name + "_fn", layer_), params_.get(name + "_scale", layer_),
                   params_.get(name + "_base", layer_), config_.hc_eps, config_.hc_sinkhorn_iters};
  return words_->hc_read(streams, pre, p, weight(norm));
}

Tensor Model::run(const Tensor& tokens, const Numerics& numerics, Measures* measures) {
  numerics_ = numerics;
  numerics_.cache = numerics.cache || numerics.exact;
  FATHOM_CHECK(numerics.exact || !(numerics.wide_sums || numerics.score_bf16));
  FATHOM_CHECK(!numerics.exact || tokens.is_cpu());
  words_ = !numerics.exact      ? &kFastWords
           : numerics.wide_sums ? &canonical::wide_words()
                                : &canonical::words();
  measures_ = measures;
  State s;
  s.batch = tokens.size(0);
  s.length = tokens.size(1);
  s.tokens = tokens.reshape({-1});
  s.mapped = map_.index_select(0, s.tokens);
  const int64_t n = s.tokens.size(0);
  const Tensor rows = at::embedding(params_.get("embed"), s.tokens);
  s.streams = rows.unsqueeze(1).expand({n, config_.hc_mult, config_.hidden_size}).contiguous();
  s.pre = at::zeros({n, config_.hc_mult}, params_.get("hc_attn_base", 0).options()).detach();
  s.pre.select(1, 0).fill_(1);
  for (layer_ = 0; layer_ < config_.num_hidden_layers; ++layer_) {
    const LayerPlan& plan = plans_[layer_];
    if (hook_) {
      hook_(layer_, s);
    }
    engram(s, plan);
    HcOut in = site("hc_attn", "attn_norm", s.streams, s.pre);
    show("attn.x", in.x);
    const Tensor y = attention(s, plan, in.x);
    show("attn.out", y);
    const Tensor mid = words_->hc_write(in.streams, y, in.mix);
    show("mid", mid);
    HcOut ffn = site("hc_ffn", "ffn_norm", mid, in.pre);
    const Tensor z = moe(ffn.x);
    show("moe.out", z);
    s.streams = words_->hc_write(ffn.streams, z, ffn.mix);
    s.pre = ffn.pre;
    show("out", s.streams);
    show("hc_ffn.pre", s.pre);
  }
  close_group(s);
  return words_->hc_collapse(s.streams, s.pre, params_.get("norm"));
}

Tensor Model::logits(const Tensor& x) const { return words_->linear_f32(x, params_.get("head")); }

Tensor Model::engram_rows(const State& s, const LayerPlan& plan) const {
  const EngramHash& table = hashes_[static_cast<size_t>(plan.engram)];
  const Tensor ids = s.mapped.view({s.batch, s.length});
  const int64_t pad_token = config_.engram_pad_token_id;
  const Tensor pad = map_.narrow(0, pad_token, 1);
  Tensor hash = ids * table.multipliers[0];
  std::vector<Tensor> columns;
  for (int64_t back = 1; back < config_.engram_max_ngram_size; ++back) {
    const int64_t held = std::min(back, s.length);
    const Tensor start = pad.unsqueeze(0).expand({s.batch, held});
    const Tensor earlier = at::cat({start, ids.narrow(1, 0, s.length - held)}, 1);
    hash = hash.bitwise_xor(earlier * table.multipliers[back]);
    for (int64_t head = 0; head < config_.engram_n_heads; ++head) {
      const int64_t k = (back - 1) * config_.engram_n_heads + head;
      columns.push_back(hash.remainder(table.primes[k]) + table.offsets[k]);
    }
  }
  return at::stack(columns, 2).view({s.batch * s.length, -1});
}

void Model::engram(State& s, const LayerPlan& plan) {
  if (plan.engram < 0) {
    return;
  }
  const Tensor rows = engram_rows(s, plan);
  show("engram.rows", rows);
  const Tensor looked = at::embedding(weight("engram.table"), rows).flatten(1);
  const Tensor kv = project(looked, "engram.wkv");
  const Tensor gain = widen(weight("engram.q_weight")) * widen(weight("engram.k_weight"));
  s.streams = words_->engram_add(s.streams, kv, gain);
  show("engram.out", s.streams);
}

void Model::compress(State& s, const LayerPlan& plan, const Tensor& x) {
  const int64_t count = s.length / plan.ratio;
  const int64_t hd = config_.head_dim;
  Tensor c;
  if (plan.ratio == 1) {
    c = words_->apply_weight(x, weight("compressor.wkv"));
  } else {
    const auto grouped = [&](const char* name) {
      const Tensor all = words_->linear_f32(x, weight(name)).view({s.batch, s.length, hd});
      return all.narrow(1, 0, count * plan.ratio).reshape({s.batch * count, plan.ratio, hd});
    };
    c = words_->pool_group(grouped("compressor.wgate"), grouped("compressor.wkv"));
    c = c.to(x.scalar_type());
  }
  c = words_->rms_norm(c, weight("compressor.norm"));
  show("attn.c", c);
  Placement where = place(plan, plan.ratio);
  where.length = count;
  State::Source& source = s.sources[layer_];
  source.count = count;
  if (count == 0) {
    return;
  }
  const Tensor entry = rotate(c.unsqueeze(1), where, false).squeeze(1);
  source.entries = numerics_.cache ? fake_quant(entry, Quant::kKv4) : entry;
  show("attn.C", source.entries);
  const Tensor low = words_->apply_weight(c.detach(), weight("indexer.wk"));
  const Tensor key = words_->rms_norm(low, weight("indexer.k_norm"));
  const Tensor turned = rotate(key.unsqueeze(1), where, false).squeeze(1);
  source.index_key = numerics_.cache ? fake_quant(turned, Quant::kIdx4) : turned;
  show("attn.index_k", source.index_key);
}

Tensor Model::index_query(const LayerPlan& plan, const Query& query) {
  const int64_t n = query.x.size(0);
  const Tensor wide = project(query.qr.detach(), "indexer.wq_b");
  Placement where = place(plan, 1);
  where.length = n / state_batch_;
  const Tensor q =
      rotate(wide.view({n, config_.index_n_heads, config_.index_head_dim}), where, false);
  return numerics_.cache ? fake_quant(q, Quant::kIdx4) : q;
}

void Model::select(State& s, const LayerPlan& plan, const Query& query) {
  close_group(s);
  const State::Source& source = s.sources[plan.kv_source];
  if (source.count == 0) {
    s.selected = Tensor();
    return;
  }
  const bool learn = numerics_.index_loss && measures_ != nullptr;
  const at::AutoGradMode mode(learn && at::GradMode::is_enabled());
  const Tensor q = index_query(plan, query);
  show("attn.index_q", q);
  const double factor = 1.0 / std::sqrt(static_cast<double>(config_.index_head_dim)) /
                        std::sqrt(static_cast<double>(config_.index_n_heads));
  const Tensor plain = words_->apply_weight(query.x.detach(), weight("indexer.weights_proj"));
  show("attn.index_wproj", plain);
  const Tensor w = plain * factor;
  const bool opens_pool = numerics_.pool && plan.pool == PoolUse::kSource;
  const SelectShape shape{s.length,
                          plan.ratio,
                          config_.index_topk,
                          opens_pool ? config_.candidate_topk_blocks : 0,
                          config_.candidate_block_size,
                          numerics_.score_bf16};
  const Tensor restricted = plan.pool == PoolUse::kRestricted && numerics_.pool ? s.pool : Tensor();
  if (!numerics_.dense) {
    const Tensor wide = widen(w).detach();
    const Selection chosen =
        words_->index_select(q.detach(), source.index_key.detach(), wide, restricted, shape);
    s.selected = chosen.entries;
    s.pool = opens_pool ? chosen.pool : s.pool;
  }
  if (tap_ && s.selected.defined()) {
    show("attn.selected", selection_bits(s.selected, source.count));
  }
  if (tap_ && opens_pool && s.pool.defined()) {
    show("attn.pool", selection_bits(s.pool, source.count));
  }
  if (learn) {
    const Tensor rows = sampled(q, s.batch);
    const int64_t count = rows.size(1);
    const Tensor key = source.index_key.view({s.batch, source.count, -1});
    const Tensor dots =
        at::bmm(rows.reshape({s.batch, count * config_.index_n_heads, -1}), key.transpose(1, 2));
    const Tensor heads = dots.relu().view({s.batch, count, config_.index_n_heads, source.count});
    const Tensor mix = sampled(w, s.batch).unsqueeze(2);
    s.pending.layer = layer_;
    s.pending.scores = widen(at::matmul(mix, heads).squeeze(2));
    s.pending.target = at::zeros_like(s.pending.scores).detach();
  }
}

void Model::add_target(State& s, const LayerPlan& plan, const Tensor& q, const AttendOut& out) {
  if (s.pending.layer < 0 || plan.index_source != s.pending.layer) {
    return;
  }
  const at::NoGradGuard no_grad;
  const State::Source& source = s.sources[plan.kv_source];
  const Tensor rows = sampled(q, s.batch);  // [batch, S, H, d]
  const int64_t count = rows.size(1);
  const Tensor entries = source.entries.view({s.batch, source.count, -1});
  const Tensor dots = at::bmm(rows.reshape({s.batch, count * config_.num_attention_heads, -1}),
                              entries.transpose(1, 2));
  const double scale = 1.0 / std::sqrt(static_cast<double>(config_.head_dim));
  Tensor scores = widen(dots).mul_(scale).view({s.batch, count, -1, source.count});
  scores.sub_(sampled(out.lse, s.batch).unsqueeze(3));
  s.pending.target.add_(scores.clamp_max_(20).exp_().sum(2));
}

// The entries [batch, S, G] of the candidate blocks with the best scores [batch, S, G], where the
// last block of G may be a part of one.
Tensor Model::pool_of(const Tensor& scores) const {
  const int64_t entries = scores.size(2);
  const int64_t size = config_.candidate_block_size;
  const int64_t blocks = (entries + size - 1) / size;
  const Tensor padded = at::constant_pad_nd(scores, {0, blocks * size - entries}, -1e30);
  const Tensor best = padded.view({scores.size(0), scores.size(1), blocks, size}).amax(3);
  const Tensor kept = top_mask(best, std::min<int64_t>(config_.candidate_topk_blocks, blocks));
  return kept.repeat_interleave(size, 2).narrow(2, 0, entries);
}

void Model::close_group(State& s) {
  const int64_t layer = s.pending.layer;
  if (layer < 0) {
    return;
  }
  s.pending.layer = -1;
  const int64_t ratio = plans_[layer].ratio;
  const Tensor& scores = s.pending.scores;
  const int64_t entries = scores.size(2);
  const Tensor all = visible_mask(s.length, entries, ratio, scores.device());
  const Tensor seen = all.slice(0, kSample - 1, s.length, kSample).unsqueeze(0);
  const Tensor counted = seen.sum(2).gt(config_.index_topk).to(scores.scalar_type());  // [1, S]
  const Tensor hidden = seen.logical_not();
  const Tensor raw = s.pending.target.masked_fill(hidden, 0);
  const Tensor target = raw / raw.sum(2, true).clamp_min(1e-20);
  const Tensor masked = scores.masked_fill(hidden, -1e30);
  const Tensor rows = (counted.sum() * s.batch).clamp_min(1);
  const auto kl_of = [&](const Tensor& logits) {
    const Tensor logp = at::log_softmax(logits, 2).clamp_min(-30);
    const Tensor each = (target * (target.clamp_min(1e-20).log() - logp)).sum(2) * counted;
    return each.sum() / rows;
  };
  Tensor kl = kl_of(masked);
  const bool restricted = plans_[layer].pool == PoolUse::kRestricted && s.pool_scores.defined();
  measures_->kl[layer] = kl.detach();
  // What a restricted layer looks for must be in the pool, which other scores than its own open.
  if (restricted) kl = kl + kl_of(s.pool_scores) * numerics_.pool_weight;
  if (plans_[layer].pool == PoolUse::kSource) s.pool_scores = masked;
  measures_->index_kl = measures_->index_kl.defined() ? measures_->index_kl + kl : kl;
  if (numerics_.index_stats) {
    const at::NoGradGuard no_grad;
    const Tensor mine = top_mask(masked.detach(), config_.index_topk).logical_and(seen);
    const Tensor best = top_mask(target, config_.index_topk).logical_and(seen);
    const Tensor both = mine.logical_and(best).sum(2) * counted;
    measures_->recall[layer] = both.sum() / (rows * config_.index_topk);
    measures_->mass[layer] = ((target * mine).sum(2) * counted).sum() / rows;
    if (restricted) {
      const Tensor held = best.logical_and(pool_of(s.pool_scores.detach())).sum(2) * counted;
      measures_->pool[layer] = held.sum() / (rows * config_.index_topk);
    }
  }
}

Tensor Model::output(const Tensor& o) const {
  const int64_t n = o.size(0);
  const int64_t groups = config_.o_groups;
  const Tensor in = o.reshape({n, groups, -1}).transpose(0, 1);
  const Tensor w = weight("attn.wo_a").view({groups, config_.o_lora_rank, -1});
  const Tensor mixed = words_->apply_groups(in, w).transpose(0, 1).reshape({n, -1});
  return project(mixed, "attn.wo_b");
}

Tensor Model::attention(State& s, const LayerPlan& plan, const Tensor& x) {
  const int64_t n = x.size(0);
  const int64_t hd = config_.head_dim;
  state_batch_ = s.batch;
  Placement where = place(plan, 1);
  where.length = s.length;
  const Tensor first =
      words_->apply_weight(quantised(x), at::cat({weight("attn.wq_a"), weight("attn.wkv")}));
  const auto parts = first.split_with_sizes({config_.q_lora_rank, hd}, 1);
  Query query;
  query.x = x;
  query.qr = words_->rms_norm(parts[0], weight("attn.q_norm"));
  query.q = rotate(project(query.qr, "attn.wq_b").view({n, config_.num_attention_heads, hd}), where,
                   false);
  const Tensor row = words_->rms_norm(parts[1], weight("attn.kv_norm")).unsqueeze(1);
  Tensor kv = rotate(row, where, false).squeeze(1);
  kv = numerics_.cache ? fake_quant(kv, Quant::kA8) : kv;
  show("attn.kv", kv);
  show("attn.q", query.q);
  if (plan.owns_kv()) {
    compress(s, plan, x);
  }
  if (plan.owns_indexer()) {
    select(s, plan, query);
  }
  AttendShape shape{s.length, config_.sliding_window, std::max<int64_t>(plan.ratio, 1), 0,
                    1.0 / std::sqrt(static_cast<double>(hd))};
  Tensor entries;
  if (plan.ratio > 0 && s.sources[plan.kv_source].count > 0) {
    entries = s.sources[plan.kv_source].entries;
    shape.entries = s.sources[plan.kv_source].count;
  }
  const Tensor selected = entries.defined() ? s.selected : Tensor();
  AttendOut out;
  if (numerics_.exact) {
    const ExactKeys keys{{entries, selected}, config_.index_topk};
    out.out = attend_exact(query.q, kv, keys, weight("attn.attn_sink"), shape);
  } else {
    out = attend(query.q, kv, {entries, selected}, weight("attn.attn_sink"), shape);
    if (entries.defined()) {
      add_target(s, plan, query.q, out);
    }
  }
  show("attn.o_raw", out.out);
  return output(rotate(out.out, where, true));
}

Tensor Model::moe(const Tensor& x) {
  const Tensor logits = words_->linear_f32(x, weight("ffn.gate"));
  Tensor load = load_[layer_];
  const Tensor wt = words_->route(logits, route_bias_[layer_], config_.num_experts_per_tok,
                                  config_.routed_scaling_factor, load);
  show("moe.weights_dense", wt);
  if (numerics_.exact) {
    return moe_exact(x, wt);
  }
  const int64_t d = config_.hidden_size;
  const Tensor gu = apply_weight(quantised(x), weight("ffn.w13").view({-1, d}));
  const Tensor h = swiglu(gu, wt, config_.moe_intermediate_size, config_.swiglu_limit);
  return product(quantised(h), weight("ffn.w2t").view({-1, d}));
}

}  // namespace fathom::train
