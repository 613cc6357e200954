#include "train/params.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"
#include "train/quant.h"

namespace fathom::train {

namespace {

using at::Tensor;

std::string key_of(const std::string& name, int64_t layer) {
  return layer < 0 ? name : std::to_string(layer) + "." + name;
}

double fan_in(int64_t n) { return 1.0 / std::sqrt(static_cast<double>(n)); }

constexpr double kOutGain = 0.10;  // wo_b and w2 start small
constexpr double kOnes = -1;       // init marker: all ones
constexpr double kHyper = -2;      // init marker: set by init_hyper

}  // namespace

void Params::add(const ParamSpec& spec) { specs_.push_back(spec); }

void Params::declare_layer(const TextConfig& c, const LayerPlan& plan) {
  const int64_t l = plan.layer;
  const int64_t d = c.hidden_size;
  const int64_t hd = c.head_dim;
  const int64_t rq = c.q_lora_rank;
  const int64_t group_in = c.num_attention_heads / c.o_groups * hd;
  const int64_t mixed = c.o_groups * c.o_lora_rank;
  const int64_t i = c.moe_intermediate_size;
  const int64_t experts = c.n_routed_experts + 1;
  add({"attn.wq_a", l, {rq, d}, Group::kMuon, Store::kFp8, fan_in(d), rq});
  add({"attn.wkv", l, {hd, d}, Group::kMuon, Store::kFp8, fan_in(d), hd});
  add({"attn.wq_b",
       l,
       {c.num_attention_heads * hd, rq},
       Group::kMuon,
       Store::kFp8,
       fan_in(rq),
       hd});
  add({"attn.wo_a",
       l,
       {mixed, group_in},
       Group::kMuon,
       Store::kFp8,
       fan_in(group_in),
       c.o_lora_rank});
  add({"attn.wo_b", l, {d, mixed}, Group::kMuon, Store::kFp8, kOutGain * fan_in(mixed), d});
  add({"ffn.w13", l, {2, experts, i, d}, Group::kMuon, Store::kFp4, fan_in(d), i});
  add({"ffn.w2t", l, {experts, i, d}, Group::kMuon, Store::kFp4, kOutGain * fan_in(i), i});
  add({"attn_norm", l, {d}, Group::kSmall, Store::kBf16, kOnes});
  add({"ffn_norm", l, {d}, Group::kSmall, Store::kBf16, kOnes});
  add({"attn.q_norm", l, {rq}, Group::kSmall, Store::kBf16, kOnes});
  add({"attn.kv_norm", l, {hd}, Group::kSmall, Store::kBf16, kOnes});
  add({"ffn.gate", l, {c.n_routed_experts, d}, Group::kSmall, Store::kBf16, 0.02});
  add({"attn.attn_sink", l, {c.num_attention_heads}, Group::kSmallF32, Store::kF32, 0});
  const int64_t n = c.hc_mult;
  for (const std::string site : {"hc_attn", "hc_ffn"}) {
    add({site + "_fn", l, {(2 + n) * n, n * d}, Group::kSmallF32, Store::kF32, fan_in(n * d)});
    add({site + "_scale", l, {3}, Group::kSmallF32, Store::kF32, kHyper});
    add({site + "_base", l, {(2 + n) * n}, Group::kSmallF32, Store::kF32, kHyper});
  }
  if (plan.owns_kv()) {
    add({"compressor.wkv", l, {hd, d}, Group::kMuon, Store::kBf16, fan_in(d), hd});
    if (plan.ratio == 2) {
      add({"compressor.wgate", l, {hd, d}, Group::kMuon, Store::kBf16, fan_in(d), hd});
    }
    add({"compressor.norm", l, {hd}, Group::kSmall, Store::kBf16, kOnes});
    add({"indexer.wk", l, {c.index_head_dim, hd}, Group::kIndexer, Store::kBf16, fan_in(hd)});
    add({"indexer.k_norm", l, {c.index_head_dim}, Group::kIndexer, Store::kBf16, kOnes});
  }
  if (plan.owns_indexer()) {
    const int64_t wide = c.index_n_heads * c.index_head_dim;
    add({"indexer.wq_b", l, {wide, rq}, Group::kIndexer, Store::kFp8, fan_in(rq)});
    add({"indexer.weights_proj",
         l,
         {c.index_n_heads, d},
         Group::kIndexer,
         Store::kBf16,
         fan_in(d)});
  }
  if (plan.engram >= 0) {
    const int64_t looked = (c.engram_max_ngram_size - 1) * c.engram_n_heads * c.engram_head_dim;
    add({"engram.wkv", l, {(n + 1) * d, looked}, Group::kMuon, Store::kFp8, fan_in(looked), d});
    add({"engram.q_weight", l, {n, d}, Group::kSmall, Store::kBf16, kOnes});
    add({"engram.k_weight", l, {n, d}, Group::kSmall, Store::kBf16, kOnes});
    const int64_t rows = c.engram_num_embeddings[static_cast<size_t>(plan.engram)];
    add({"engram.table", l, {rows, c.engram_head_dim}, Group::kTable, Store::kRows, 0.02});
  }
}

Params::Params(const ModelConfig& config, ParamTypes types, const at::Device& device) {
  const TextConfig& text = config.text_config;
  FATHOM_CHECK(text.hc_mult == 4);
  add({"embed", -1, {text.vocab_size, text.hidden_size}, Group::kEmbed, Store::kBf16, 0.2});
  add({"head", -1, {text.vocab_size, text.hidden_size}, Group::kEmbed, Store::kBf16, 0.02});
  add({"norm", -1, {text.hidden_size}, Group::kSmall, Store::kBf16, kOnes});
  for (const LayerPlan& plan : make_plan(config).layers) {
    declare_layer(text, plan);
  }
  std::stable_sort(specs_.begin(), specs_.end(), [](const ParamSpec& a, const ParamSpec& b) {
    return std::tie(a.group, a.name, a.layer) < std::tie(b.group, b.name, b.layer);
  });
  int64_t at = 0;
  for (ParamSpec& spec : specs_) {
    spec.offset = at;
    spec.count = 1;
    for (const int64_t size : spec.shape) {
      spec.count *= size;
    }
    auto& range = ranges_[static_cast<int>(spec.group)];
    range = {range.second == 0 ? at : range.first, at + spec.count};
    at += (spec.count + 15) / 16 * 16;  // keeps every parameter on a 32-byte line
    range.second = at;
    low_count_ = spec.group == Group::kSmallF32 ? low_count_ : at;
  }
  const auto options = at::TensorOptions().device(device);
  master_ = at::zeros({at}, options.dtype(at::kFloat));
  low_ = at::zeros({low_count_}, options.dtype(types.low));
  low_grad_ = at::zeros({low_count_}, options.dtype(types.low));
  high_ = at::zeros({at - low_count_}, options.dtype(types.high));
  high_grad_ = at::zeros({at - low_count_}, options.dtype(types.high));
  for (size_t i = 0; i < specs_.size(); ++i) {
    const ParamSpec& spec = specs_[i];
    const bool high = spec.group == Group::kSmallF32;
    const int64_t from = spec.offset - (high ? low_count_ : 0);
    Tensor leaf = (high ? high_ : low_).narrow(0, from, spec.count).view(spec.shape).detach();
    leaf.requires_grad_(true);
    leaf.mutable_grad() =
        (high ? high_grad_ : low_grad_).narrow(0, from, spec.count).view(spec.shape);
    leaves_.push_back(leaf);
    index_[key_of(spec.name, spec.layer)] = i;
  }
}

bool Params::has(const std::string& name, int64_t layer) const {
  return index_.count(key_of(name, layer)) != 0;
}

const Tensor& Params::get(const std::string& name, int64_t layer) const {
  FATHOM_CHECK(has(name, layer));
  return leaves_[index_.at(key_of(name, layer))];
}

const ParamSpec& Params::spec(const std::string& name, int64_t layer) const {
  FATHOM_CHECK(has(name, layer));
  return specs_[index_.at(key_of(name, layer))];
}

Tensor Params::master(const ParamSpec& spec) const {
  return master_.narrow(0, spec.offset, spec.count).view(spec.shape);
}

void Params::init(const TextConfig& text, uint64_t seed) {
  const at::NoGradGuard no_grad;
  const int64_t n = text.hc_mult;
  for (const ParamSpec& spec : specs_) {
    Tensor value = master(spec);
    if (spec.init == kOnes) {
      value.fill_(1);
    } else if (spec.init == kHyper && spec.shape[0] == 3) {
      value.fill_(0.01);
    } else if (spec.init == kHyper) {
      // The pre-mix of a site favours one stream, rotating by site; combinations stay near
      // identity.
      const int64_t site = 2 * spec.layer + (spec.name == "hc_ffn_base" ? 1 : 0);
      value.zero_();
      value.narrow(0, 0, n).fill_(-3);
      value[(site + 1) % n] = 1.5;
      value.narrow(0, 2 * n, n * n).view({n, n}).fill_diagonal_(3);
    } else {
      auto generator = at::make_generator<at::CPUGeneratorImpl>(seed * 1000003 + spec.offset);
      value.copy_(at::randn(spec.shape, generator, at::kFloat) * spec.init);
    }
  }
  sync(false);
}

void Params::sync(bool quantised) {
  const at::NoGradGuard no_grad;
  low_.copy_(master_.narrow(0, 0, low_count_));
  high_.copy_(master_.narrow(0, low_count_, high_.numel()));
  if (quantised) {
    for (const ParamSpec& spec : specs_) {
      quantise(spec);
    }
  }
}

void Params::quantise(const ParamSpec& spec) {
  Tensor out = low_.narrow(0, std::min(spec.offset, low_count_ - 1), 0);
  if (spec.store == Store::kFp8 || spec.store == Store::kFp4 || spec.store == Store::kRows) {
    out = low_.narrow(0, spec.offset, spec.count).view(spec.shape);
  }
  const Tensor value = master(spec);
  if (spec.store == Store::kRows) {
    out.copy_(quant_fp8_rows(value).value);
  } else if (spec.store == Store::kFp8) {
    out.copy_(quant_fp8_matrix(value).value);
  } else if (spec.store == Store::kFp4) {
    // The last expert of a stack is the shared one, stored as FP8; w2t is kept transposed.
    const bool transposed = spec.name == "ffn.w2t";
    const int64_t axis = transposed ? 0 : 1;
    const int64_t routed = spec.shape[axis] - 1;
    const Tensor many = value.narrow(axis, 0, routed);
    if (transposed) {
      out.narrow(axis, 0, routed).copy_(quant_fp4_rows(many.transpose(1, 2)).value.transpose(1, 2));
      out[routed].copy_(quant_fp8_matrix(value[routed]).value);
      return;
    }
    out.narrow(axis, 0, routed).copy_(quant_fp4_rows(many).value);
    out[0][routed].copy_(quant_fp8_matrix(value[0][routed]).value);
    out[1][routed].copy_(quant_fp8_matrix(value[1][routed]).value);
  }
}

void Params::train_only(Group group) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    leaves_[i].requires_grad_(specs_[i].group == group);
  }
}

void Params::zero_grad() {
  low_grad_.zero_();
  high_grad_.zero_();
}

Tensor Params::gradient() const {
  return at::cat({low_grad_.to(at::kFloat), high_grad_.to(at::kFloat)});
}

}  // namespace fathom::train
