#include "train/parity.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <filesystem>

#include "train/corpus/data_corpus.h"
#include "train/corpus/data_store.h"
#include "train/export.h"
#include "train/parity_engine.h"

namespace fathom::train {

namespace {

constexpr double kOutBound = 0.032;

std::string layer_name(int64_t layer, const char* name) {
  return (layer < 10 ? "L0" : "L") + std::to_string(layer) + "." + name;
}

// Ids [n, k], -1 where there is none, as a mask [n, count].
Tensor mask_of(const Tensor& ids, int64_t count) {
  const Tensor wide = ids.to(at::kLong);
  const Tensor slots = at::where(wide.ge(0), wide, at::full_like(wide, count));
  Tensor mask = at::zeros({ids.size(0), count + 1}, at::kBool);
  mask.scatter_(1, slots, true);
  return mask.narrow(1, 0, count);
}

// `scores` [n, count] are the engine's, by which it chose.
ChoiceParity compare_sets(const Tensor& engine, const Tensor& mine, const Tensor& scores) {
  ChoiceParity out;
  out.rows = engine.size(0);
  const Tensor lost = engine.logical_and(mine.logical_not());
  const Tensor gained = mine.logical_and(engine.logical_not());
  const Tensor rows = lost.logical_or(gained).any(1).nonzero().view({-1});
  out.differing = rows.size(0);
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const int64_t row = rows[i].item<int64_t>();
    const Tensor own = scores[row].to(at::kDouble);
    const bool swapped = lost[row].sum().equal(gained[row].sum());
    const double far =
        swapped ? (own.masked_select(lost[row]).max() - own.masked_select(gained[row]).min())
                      .item<double>()
                : 1e30;
    const Tensor finite = own.masked_select(own.isfinite()).abs();
    const double size = std::max(1e-30, finite.max().item<double>());
    out.tied += far == 0 ? 1 : 0;
    out.margin = std::max(out.margin, far / size);
  }
  return out;
}

void compare_values(const Tensor& engine, const Tensor& mine, ValueParity& out) {
  const Tensor apart = (engine.to(at::kFloat).view({-1}) - mine.to(at::kFloat).reshape({-1})).abs();
  out.elements += apart.numel();
  out.equal += apart.eq(0).sum().item<int64_t>();
  out.within += apart.le(kOutBound).sum().item<int64_t>();
  out.largest = std::max(out.largest, apart.max().item<double>());
}

// The best score of each block of entries, the newest visible block above all.
Tensor block_scores(const Tensor& scores, int64_t block, int64_t ratio) {
  const int64_t n = scores.size(0);
  const int64_t blocks = (scores.size(1) + block - 1) / block;
  Tensor padded = at::full({n, blocks * block}, -1e30, at::kFloat);
  padded.narrow(1, 0, scores.size(1)).copy_(scores.clamp_min(-1e30));
  Tensor best = padded.view({n, blocks, block}).amax(2);
  for (int64_t row = 0; row < n; ++row) {
    const int64_t visible = (row + 1) / ratio;
    if (visible > 0) {
      best[row][(visible - 1) / block] = 1e30;
    }
  }
  return at::where(best.abs().lt(1e29), best, at::full_like(best, best.max().item<float>()));
}

// The definition beside one trace of the engine.
class LayerForcing {
 public:
  LayerForcing(Model& model, const EngineTrace& trace, ParityReport& report)
      : model_(model), trace_(trace), report_(report) {}

  void run(const Tensor& tokens, const Numerics& numerics) {
    model_.set_hook([this](int64_t layer, State& state) { force(layer, state); });
    model_.set_tap([this](const std::string& name, const Tensor& value) { compare(name, value); });
    model_.run(tokens, numerics);
    model_.set_hook({});
    model_.set_tap({});
  }

 private:
  const Tensor& shown(int64_t layer, const char* name) const {
    return trace_.values.at(layer_name(layer, name));
  }
  Tensor selection(int64_t layer, int64_t count) const {
    return mask_of(shown(layer, "attn.topk_ids"), count);
  }
  // The pool as a mask over entries.
  Tensor pool(int64_t layer, int64_t entries) const {
    const int64_t block = model_.config().candidate_block_size;
    const int64_t blocks = (entries + block - 1) / block;
    const Tensor kept = mask_of(shown(layer, "attn.pool_blocks"), blocks);
    return kept.repeat_interleave(block, 1).narrow(1, 0, entries);
  }

  void force(int64_t layer, State& s) {
    plan_ = &model_.plans()[static_cast<size_t>(layer)];
    if (layer > 0) {
      s.streams = shown(layer - 1, "out");
      s.pre = shown(layer - 1, "hc_ffn.pre");
    }
    if (plan_->kv_source < 0 || plan_->owns_kv()) {
      return;
    }
    State::Source& source = s.sources[plan_->kv_source];
    source.entries = shown(plan_->kv_source, "attn.C");
    source.index_key = shown(plan_->kv_source, "attn.index_k");
    source.count = source.entries.size(0);
    if (!plan_->owns_indexer()) {
      s.selected = selection(plan_->index_source, source.count);
    }
    if (plan_->pool == PoolUse::kRestricted) {
      s.pool = pool(model_.config().candidate_source_layer_id, source.count);
    }
  }

  void compare(const std::string& name, const Tensor& value) {
    const std::string what = name.substr(4);
    if (what == "engram.rows") {
      const Tensor same = trace_.values.at(name).to(at::kLong).eq(value);
      report_.hashes.rows += value.size(0);
      report_.hashes.differing += same.all(1).logical_not().sum().item<int64_t>();
    } else if (what == "moe.weights_dense") {
      const Tensor biased =
          shown(plan_->layer, "moe.scores") + model_.route_bias()[plan_->layer].unsqueeze(0);
      const Tensor engine = mask_of(shown(plan_->layer, "moe.ids"), value.size(1));
      report_.experts += compare_sets(engine, value.gt(0), biased);
    } else if (what == "attn.selected" && plan_->owns_indexer()) {
      report_.entries += compare_sets(selection(plan_->layer, value.size(1)), value, scores());
    } else if (what == "attn.pool") {
      compare_pool(value);
    } else if (const auto shown = trace_.values.find(name); shown != trace_.values.end()) {
      compare_values(shown->second, value, report_.values[what]);
    }
  }

  Tensor scores() const { return shown(plan_->layer, "attn.index_scores"); }

  void compare_pool(const Tensor& mine) {
    const int64_t block = model_.config().candidate_block_size;
    const Tensor engine = pool(plan_->layer, mine.size(1));
    report_.blocks +=
        compare_sets(engine.slice(1, 0, mine.size(1), block), mine.slice(1, 0, mine.size(1), block),
                     block_scores(scores(), block, plan_->ratio));
  }

  Model& model_;
  const EngineTrace& trace_;
  ParityReport& report_;
  const LayerPlan* plan_ = nullptr;
};

// `other`: the definition's logits with sums in fp64, which is as legal an order as any.
void compare_logits(const Tensor& engine, const Tensor& mine, const Tensor& other,
                    ParityReport& report) {
  compare_values(engine, mine, report.logits);
  const Tensor a = engine.to(at::kDouble);
  const Tensor b = mine.to(at::kDouble);
  const Tensor dots = (a * b).sum(1);
  const Tensor aa = a.square().sum(1);
  const Tensor bb = b.square().sum(1);
  const Tensor each = dots / (aa.sqrt() * bb.sqrt());
  for (int64_t i = 0; i < each.size(0); ++i) {
    report.cosines.push_back(each[i].item<double>());
  }
  const double whole = (dots.sum() / (aa.sum().sqrt() * bb.sum().sqrt())).item<double>();
  report.passage_cosine = std::min(report.passage_cosine, whole);

  const Tensor top = a.argmax(1);
  const Tensor own = b.argmax(1);
  report.positions += a.size(0);
  report.same_top += top.eq(own).sum().item<int64_t>();
  report.order_same_top += own.eq(other.argmax(1)).sum().item<int64_t>();
  const double deviation = (b - other).square().mean().sqrt().item<double>();
  report.order_deviation = std::max(report.order_deviation, deviation);
  // By how much the engine preferred its choice to the definition's.
  const Tensor lead = a.gather(1, top.view({-1, 1})) - a.gather(1, own.view({-1, 1}));
  report.lead = std::max(report.lead, lead.max().item<double>());
  report.unexplained += lead.gt(4 * deviation).sum().item<int64_t>();
}

// Passages at equal distances over each set, as many from each set as evenly divides.
Result<std::vector<std::vector<TokenId>>> read_passages(const ParityOptions& options,
                                                        const ParityEngine& engine) {
  if (!options.ids.empty()) {
    return options.ids;
  }
  FATHOM_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine.tokenizer());
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options.text, error)) {
    if (entry.path().string().ends_with(".txt.gz")) {
      paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) {
    return not_found(options.text + ": wanted held-out *.txt.gz, found none");
  }
  const auto sets = static_cast<int64_t>(paths.size());
  std::vector<std::vector<TokenId>> out;
  for (int64_t set = 0; set < sets; ++set) {
    const int64_t count = options.passages * (set + 1) / sets - options.passages * set / sets;
    FATHOM_ASSIGN_OR_RETURN(const std::string joined,
                            read_maybe_gzip(paths[static_cast<size_t>(set)]));
    std::vector<TokenId> ids;
    for (const std::string& document : split_documents(joined)) {
      FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> more,
                              tokenizer->encode(document, AddedTokens::kIgnore));
      ids.insert(ids.end(), more.begin(), more.end());
    }
    const int64_t room = static_cast<int64_t>(ids.size()) - options.tokens;
    if (room < 0) {
      return invalid(paths[static_cast<size_t>(set)] + ": wanted at least " +
                     std::to_string(options.tokens) + " tokens, found " +
                     std::to_string(ids.size()));
    }
    for (int64_t i = 0; i < count; ++i) {
      const auto begin = ids.begin() + room * (2 * i + 1) / (2 * count);
      out.emplace_back(begin, begin + options.tokens);
    }
  }
  return out;
}

}  // namespace

ChoiceParity& ChoiceParity::operator+=(const ChoiceParity& other) {
  rows += other.rows;
  differing += other.differing;
  tied += other.tied;
  margin = std::max(margin, other.margin);
  return *this;
}

Result<ParityReport> measure_parity(const ParityOptions& options) {
  const at::NoGradGuard no_grad;
  int64_t longest = options.tokens;
  for (const std::vector<TokenId>& ids : options.ids) {
    longest = std::max(longest, static_cast<int64_t>(ids.size()));
  }
  FATHOM_ASSIGN_OR_RETURN(const auto engine, ParityEngine::open(options.model, longest));
  FATHOM_ASSIGN_OR_RETURN(const auto passages, read_passages(options, *engine));
  Params params(engine->config(), ParamTypes{}, at::kCPU);
  Model model(engine->config(), params, engine->engram_map());
  FATHOM_RETURN_IF_ERROR(import_model(model, params, options.model));
  Numerics numerics;
  numerics.exact = true;
  ParityReport report;
  for (const std::vector<TokenId>& ids : passages) {
    FATHOM_ASSIGN_OR_RETURN(const EngineTrace trace, engine->trace(ids));
    const Tensor tokens =
        at::tensor(at::ArrayRef<TokenId>(ids), at::kInt).to(at::kLong).view({1, -1});
    LayerForcing(model, trace, report).run(tokens, numerics);
    const Tensor logits = model.logits(model.run(tokens, numerics));
    Numerics wide = numerics;
    wide.wide_sums = true;
    const Tensor other = model.logits(model.run(tokens, wide));
    compare_logits(trace.logits, logits, other, report);
    ++report.passages;
    report.tokens = static_cast<int64_t>(ids.size());
    if (options.progress) {
      options.progress(report);
    }
  }
  return report;
}

}  // namespace fathom::train
