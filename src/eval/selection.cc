#include "eval/selection.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "model/rope.h"
#include "ops/rows.h"
#include "tensor/codecs.h"

namespace fathom {
namespace {

std::vector<float> widened(const Tensor& t) {
  std::vector<float> values(static_cast<size_t>(t.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = bf16_to_float(t.as<const Bf16>()[i]);
  return values;
}

float dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void write_ids(int32_t* out, int64_t n_columns, const std::vector<int32_t>& ids) {
  std::fill(out, out + n_columns, kNoEntry);
  std::copy(ids.begin(), ids.end(), out);
}

}  // namespace

// One layer's attention, without its selection.
struct SelectionProbe::Attention {
  const float* q = nullptr;        // [N, H dh]
  const float* window = nullptr;   // [N, dh]
  const float* entries = nullptr;  // [E, dh]
  const float* sink = nullptr;     // [H]
  std::vector<float> frequencies;
  int ratio = 1;
};

void SelectionProbe::value(const std::string& name, const Tensor& tensor) {
  if (name.size() < 5 || name[0] != 'L') return;
  int layer = 0;
  const char* end = name.data() + name.size();
  if (std::from_chars(name.data() + 1, end, layer).ec != std::errc()) return;
  const std::string what = name.substr(4);
  if (what == "attn.topk_ids") {
    const LayerPlan& plan = model_.plan().layers[static_cast<size_t>(layer)];
    if (selection_ == Selection::kRecent) choose_recent(plan.ratio, tensor);
    if (selection_ == Selection::kOracle) choose_oracle(plan, tensor);
  }
  if (selection_ != Selection::kOracle) return;
  if (what == "attn.wq_b") q_ = widened(tensor);
  if (what == "attn.kv") window_ = widened(tensor);
  if (what == "attn.C") entries_[layer] = widened(tensor);
}

void SelectionProbe::choose_recent(int ratio, const Tensor& topk) const {
  for (int64_t row = 0; row < topk.dim(0); ++row) {
    const int64_t n_visible = visible_entries(row, ratio);
    std::vector<int32_t> ids(static_cast<size_t>(std::min(n_visible, topk.dim(1))));
    std::iota(ids.begin(), ids.end(),
              static_cast<int32_t>(n_visible - static_cast<int64_t>(ids.size())));
    write_ids(topk.row<int32_t>(row), topk.dim(1), ids);
  }
}

void SelectionProbe::choose_oracle(const LayerPlan& plan, const Tensor& topk) const {
  const auto found = entries_.find(plan.kv_source);
  if (found == entries_.end()) return;  // no group was complete: nothing to choose from
  const Tensor sink = *checkpoint_.get("layers." + std::to_string(plan.layer) + ".attn.attn_sink");
  const Attention attention = {
      .q = q_.data(),
      .window = window_.data(),
      .entries = found->second.data(),
      .sink = sink.as<float>(),
      .frequencies = rope_frequencies(model_.config().text_config, plan.yarn),
      .ratio = plan.ratio};
  for (int64_t row = 0; row < topk.dim(0); ++row) {
    std::vector<double> mass(static_cast<size_t>(visible_entries(row, plan.ratio)));
    add_entry_mass(attention, row, mass);
    std::vector<int32_t> ids(mass.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
      return mass[static_cast<size_t>(a)] > mass[static_cast<size_t>(b)];
    });
    ids.resize(std::min(ids.size(), static_cast<size_t>(topk.dim(1))));
    std::sort(ids.begin(), ids.end());
    write_ids(topk.row<int32_t>(row), topk.dim(1), ids);
  }
}

// Adds, for each head of a row, the share of its attention that each visible entry takes.
void SelectionProbe::add_entry_mass(const Attention& attention, int64_t row,
                                    std::vector<double>& mass) const {
  const TextConfig& text = model_.config().text_config;
  const int64_t width = text.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  const int64_t first = std::max<int64_t>(0, row - text.sliding_window + 1);
  std::vector<float> q(static_cast<size_t>(width));
  std::vector<double> scores(mass.size());
  for (int64_t head = 0; head < text.num_attention_heads; ++head) {
    const float* raw = attention.q + (row * text.num_attention_heads + head) * width;
    std::copy(raw, raw + width, q.begin());
    float* rotated = q.data() + width - text.qk_rope_head_dim;
    for (size_t j = 0; j < attention.frequencies.size(); ++j) {
      const float angle = static_cast<float>(row) * attention.frequencies[j];
      const float u = rotated[2 * j];
      const float v = rotated[2 * j + 1];
      rotated[2 * j] = u * std::cos(angle) - v * std::sin(angle);
      rotated[2 * j + 1] = u * std::sin(angle) + v * std::cos(angle);
    }
    double sum = std::exp(static_cast<double>(attention.sink[head]));
    for (int64_t p = first; p <= row; ++p) {
      sum +=
          std::exp(static_cast<double>(dot(q.data(), attention.window + p * width, width) * scale));
    }
    for (size_t e = 0; e < mass.size(); ++e) {
      const float* entry = attention.entries + static_cast<int64_t>(e) * width;
      scores[e] = std::exp(static_cast<double>(dot(q.data(), entry, width) * scale));
      sum += scores[e];
    }
    for (size_t e = 0; e < mass.size(); ++e) mass[e] += scores[e] / sum;
  }
}

}  // namespace fathom
