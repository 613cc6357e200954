#include "eval/case_names.h"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace fathom {

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

bool is_quantised(std::string_view what) {
  constexpr std::string_view kNames[] = {"attn.kv", "attn.C", "attn.index_k", "attn.index_q"};
  return std::find(std::begin(kNames), std::end(kNames), what) != std::end(kNames);
}

}  // namespace fathom
