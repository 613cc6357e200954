#include "eval/case_names.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>

namespace fathom {
namespace {

using Names = std::set<std::string_view>;

bool is_layer_value(CaseKind kind, std::string_view what) {
  static const Names kWhole = {"in",
                               "u",
                               "mid",
                               "out",
                               "engram.in",
                               "engram.rows",
                               "engram.lookup",
                               "engram.wkv",
                               "engram.gate",
                               "engram.out",
                               "attn.x",
                               "attn.wq_a",
                               "attn.wq_b",
                               "attn.qr",
                               "attn.q",
                               "attn.wkv",
                               "attn.kv_norm",
                               "attn.kv_rope",
                               "attn.kv",
                               "attn.c",
                               "attn.c_rope",
                               "attn.C",
                               "attn.index_k_rope",
                               "attn.index_k",
                               "attn.index_q_rope",
                               "attn.index_q",
                               "attn.index_wproj",
                               "attn.index_scores",
                               "attn.pool_blocks",
                               "attn.pool_gap",
                               "attn.topk_ids",
                               "attn.topk_gap",
                               "attn.o_raw",
                               "attn.o",
                               "attn.o_lora",
                               "attn.out",
                               "hc_attn.mix",
                               "hc_attn.pre",
                               "hc_attn.post",
                               "hc_attn.comb",
                               "hc_attn.u",
                               "hc_ffn.mix",
                               "hc_ffn.pre",
                               "hc_ffn.post",
                               "hc_ffn.comb",
                               "hc_ffn.u",
                               "moe.x",
                               "moe.scores",
                               "moe.ids",
                               "moe.weights",
                               "moe.gap",
                               "moe.shared_out",
                               "moe.out"};
  static const Names kReduced = {"topk_ids", "topk_gap", "pool_blocks", "pool_gap"};
  if (kWhole.contains(what)) return true;
  if (kind == CaseKind::kDecodeFull) return false;
  return kReduced.contains(what) || (kind == CaseKind::kReplay && what == "window_kv");
}

bool is_whole_value(CaseKind kind, std::string_view name) {
  static const Names kRows = {"logits",          "residual", "residual_positions",
                              "residual_layers", "moe_ids",  "moe_gap"};
  if (name == "head.x" || name == "head.u") return true;
  if (kind == CaseKind::kDecodeFull) return false;
  if (kRows.contains(name)) return true;
  if (kind == CaseKind::kReplay) return name == "logits_exact";
  return kind == CaseKind::kPrompt &&
         (name == "positions" || name == "token_types" || name == "engram.mapped_ids");
}

}  // namespace

std::optional<int64_t> number_behind(std::string_view name, std::string_view before) {
  if (!name.starts_with(before)) return std::nullopt;
  name.remove_prefix(before.size());
  int64_t number = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool digits = code == std::errc() && !name.starts_with('-');
  if (!digits || end == name.data() + name.size() || *end != '.') return std::nullopt;
  return number;
}

std::optional<LayerName> layer_name(std::string_view name) {
  const std::optional<int64_t> layer = number_behind(name, "L");
  if (!layer || *layer > 9999) return std::nullopt;
  return LayerName{static_cast<int>(*layer), name.substr(name.find('.') + 1)};
}

std::string shown_name(std::string_view stored) {
  if (stored == "head.x" || stored == "head.u") return std::string(stored);
  const std::optional<LayerName> name = layer_name(stored);
  if (!name || name->what.ends_with("gap") || name->what == "window_kv") return {};
  const std::string layer(stored.substr(0, stored.size() - name->what.size()));
  const bool reduced = name->what == "topk_ids" || name->what == "pool_blocks";
  return layer + (reduced ? "attn." : "") + std::string(name->what);
}

std::string gap_name(std::string_view stored) {
  for (const auto& [ids, gap] :
       {std::pair<std::string_view, std::string_view>{"topk_ids", "topk_gap"},
        {"pool_blocks", "pool_gap"},
        {"moe.ids", "moe.gap"},
        {"moe_ids", "moe_gap"}}) {
    if (!stored.ends_with(ids)) continue;
    return std::string(stored.substr(0, stored.size() - ids.size())) + std::string(gap);
  }
  return {};
}

CaseKind case_kind(std::string_view case_name, bool has_tokens) {
  if (!has_tokens) {
    return case_name.starts_with("replay") ? CaseKind::kReplay : CaseKind::kLengths;
  }
  if (case_name.starts_with("decode_full")) return CaseKind::kDecodeFull;
  return case_name.starts_with("decode") ? CaseKind::kDecode : CaseKind::kPrompt;
}

bool is_case_name(CaseKind kind, std::string_view stored, int64_t n_layers) {
  const bool many = kind == CaseKind::kLengths || kind == CaseKind::kReplay;
  if (many || (kind == CaseKind::kDecodeFull && stored != "tokens")) {
    if (!number_behind(stored, many ? "n" : "pos")) return false;
    stored.remove_prefix(stored.find('.') + 1);
    if (stored == "tokens") return many;
  }
  if (stored == "tokens") return true;
  const std::optional<LayerName> layer = layer_name(stored);
  return layer ? layer->layer < n_layers && is_layer_value(kind, layer->what)
               : is_whole_value(kind, stored);
}

bool is_quantised(std::string_view what) {
  constexpr std::string_view kNames[] = {"attn.kv", "attn.C", "attn.index_k", "attn.index_q"};
  return std::find(std::begin(kNames), std::end(kNames), what) != std::end(kNames);
}

}  // namespace fathom
