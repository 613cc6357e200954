#include "model/layer_plan.h"

#include <algorithm>
#include <cstdio>

namespace fathom {
namespace {

// The closest id at or before the layer, or -1. Ids ascend.
int64_t closest(const std::vector<int64_t>& ids, int64_t layer) {
  int64_t found = -1;
  for (const int64_t id : ids) found = id <= layer ? id : found;
  return found;
}

bool contains(const std::vector<int64_t>& ids, int layer) {
  return std::find(ids.begin(), ids.end(), layer) != ids.end();
}

int count_encoder_layers(const TextConfig& text) {
  if (text.kv_source_layer_ids.empty()) return static_cast<int>(text.num_hidden_layers);
  const int64_t last = text.kv_source_layer_ids.back();
  const bool has_decoder = text.compress_ratios[static_cast<size_t>(last)] == 1;
  return static_cast<int>(has_decoder ? last : text.num_hidden_layers);
}

LayerPlan plan_layer(const TextConfig& text, int layer) {
  LayerPlan plan;
  plan.layer = layer;
  plan.ratio = static_cast<int>(text.compress_ratios[static_cast<size_t>(layer)]);
  plan.rope_theta = plan.ratio > 0 ? text.compress_rope_theta : text.rope_theta;
  plan.yarn = plan.ratio > 0;
  plan.tap = text.num_nextn_predict_layers > 0 && contains(text.dspark_target_layer_ids, layer);
  const auto engram = std::find(text.engram_layer_ids.begin(), text.engram_layer_ids.end(), layer);
  if (engram != text.engram_layer_ids.end()) {
    plan.engram = static_cast<int>(engram - text.engram_layer_ids.begin());
  }
  if (plan.ratio == 0) return plan;
  plan.kv_source = static_cast<int>(kv_source_of(text, layer));
  plan.index_source = static_cast<int>(index_source_of(text, layer));
  plan.mode = plan.owns_kv()        ? CsaMode::kFull
              : plan.owns_indexer() ? CsaMode::kReindex
                                    : CsaMode::kReuse;
  const int64_t source = text.candidate_source_layer_id;
  if (source >= 0 && plan.owns_indexer() && layer >= source) {
    plan.pool = layer == source ? PoolUse::kSource : PoolUse::kRestricted;
  }
  return plan;
}

std::string id_text(int id) { return id < 0 ? "-" : std::to_string(id); }

}  // namespace

int64_t kv_source_of(const TextConfig& text, int64_t layer) {
  return closest(text.kv_source_layer_ids, layer);
}

int64_t index_source_of(const TextConfig& text, int64_t layer) {
  return closest(text.index_source_layer_ids, layer);
}

KvGeometry kv_for_context(KvGeometry kv, int64_t context) {
  constexpr int64_t kReleasedRing = 128;
  constexpr int64_t kListBlock = 64;
  const int64_t used =
      std::max(kReleasedRing, (context + kListBlock - 1) / kListBlock * kListBlock);
  const int64_t spare = std::max<int64_t>(0, kv.sliding_window - used);
  kv.sliding_window -= spare / kListBlock * kListBlock;
  return kv;
}

ModelPlan make_plan(const ModelConfig& config) {
  const TextConfig& text = config.text_config;
  ModelPlan plan;
  plan.n_encoder_layers = count_encoder_layers(text);
  for (int layer = 0; layer < text.num_hidden_layers; ++layer) {
    plan.layers.push_back(plan_layer(text, layer));
    plan.layers.back().decoder = layer >= plan.n_encoder_layers;
  }
  plan.kv = {.n_layers = static_cast<int>(text.num_hidden_layers),
             .head_dim = text.head_dim,
             .index_head_dim = text.index_head_dim,
             .sliding_window = text.sliding_window};
  for (const LayerPlan& layer : plan.layers) {
    if (layer.owns_kv()) plan.kv.sources.push_back({.layer = layer.layer, .ratio = layer.ratio});
  }
  return plan;
}

const char* mode_name(CsaMode mode) {
  switch (mode) {
    case CsaMode::kSwa:
      return "SWA";
    case CsaMode::kFull:
      return "Full";
    case CsaMode::kReindex:
      return "Reindex";
    case CsaMode::kReuse:
      return "Reuse";
  }
  return "?";
}

const char* pool_name(PoolUse pool) {
  switch (pool) {
    case PoolUse::kNone:
      return "-";
    case PoolUse::kSource:
      return "source";
    case PoolUse::kRestricted:
      return "restricted";
  }
  return "?";
}

std::string plan_text(const ModelPlan& plan) {
  std::string text = "layer half ratio mode    kv  index pool       theta       engram tap\n";
  for (const LayerPlan& l : plan.layers) {
    char line[160];
    char theta[32];
    std::snprintf(theta, sizeof(theta), "%.0f%s", l.rope_theta, l.yarn ? "+yarn" : "");
    std::snprintf(line, sizeof(line), "%5d %-4s %5d %-7s %-3s %-5s %-10s %-11s %-6s %s\n", l.layer,
                  l.decoder ? "dec" : "enc", l.ratio, mode_name(l.mode),
                  id_text(l.kv_source).c_str(), id_text(l.index_source).c_str(), pool_name(l.pool),
                  theta, l.engram >= 0 ? "yes" : "-", l.tap ? "yes" : "-");
    text += line;
  }
  return text;
}

}  // namespace fathom
