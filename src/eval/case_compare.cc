#include "eval/case_compare.h"

#include <algorithm>
#include <cmath>

#include "eval/case_names.h"
#include "eval/collect.h"

namespace fathom {
namespace {

// Running freely, rounding upstream may move a score by this much (one BF16 unit of a score near
// 4): what was chosen by less is not decided. An exact tie is: the smaller id wins.
constexpr double kUndecidedGap = 0.02;

Numbers without_holes(const Numbers& ids) {
  Numbers kept;
  for (const double id : ids) {
    if (id >= 0) kept.push_back(id);
  }
  return kept;
}

double bf16_ulp(double value) {
  if (value == 0 || !std::isfinite(value)) return 0x1p-133;
  return std::ldexp(1.0, std::ilogb(value) - 7);
}

double largest_magnitude(const Numbers& values) {
  double largest = 0;
  for (const double v : values) {
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  }
  return largest;
}

}  // namespace

double largest_difference(const Numbers& a, const Numbers& b) {
  FATHOM_CHECK(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    const double difference = std::fabs(a[i] - b[i]);
    if (std::isnan(difference)) return INFINITY;
    largest = std::max(largest, difference);
  }
  return largest;
}

void CaseComparison::fail(const std::string& tensor, const std::string& text) {
  report_.problems.push_back("case " + name_ + ": " + tensor + ": " + text);
}

void CaseComparison::note(const std::string& tensor, double error, double bound) {
  ++report_.compared;
  if (error > bound || std::isnan(error)) {
    fail(tensor, "wanted a deviation of at most " + std::to_string(bound) + ", found " +
                     std::to_string(error));
  }
  if (report_.worst.bound == 0 || error * report_.worst.bound > report_.worst.error * bound) {
    report_.worst = {.case_name = name_, .tensor = tensor, .error = error, .bound = bound};
  }
}

Numbers CaseComparison::numbers(const std::string& name) const {
  const StoredTensor* stored = file_.find(name);
  return stored == nullptr ? Numbers() : to_numbers(stored->view);
}

bool CaseComparison::has_size(const std::string& name, const Numbers& got, size_t wanted) {
  if (got.size() == wanted) return true;
  fail(name, "wanted " + std::to_string(wanted) + " values, found " + std::to_string(got.size()));
  return false;
}

Numbers CaseComparison::row_values(const std::string& name, const Numbers& all, int64_t row,
                                   int64_t n_rows) {
  const auto size = static_cast<int64_t>(all.size());
  if (n_rows <= 0 || size % n_rows != 0 || row >= n_rows) {
    fail(name, "wanted values for " + std::to_string(n_rows) + " rows, found " +
                   std::to_string(size) + " values");
    return {};
  }
  const auto begin = all.begin() + row * (size / n_rows);
  return {begin, begin + size / n_rows};
}

void CaseComparison::count_ties() {
  for (const StoredTensor& tensor : file_.tensors()) {
    if (!tensor.name.ends_with("gap")) continue;
    const Numbers gaps = to_numbers(tensor.view);
    report_.ties += std::ranges::count(gaps, 0.0);
  }
}

double CaseComparison::gap(const std::string& name, int64_t at) const {
  const Numbers gaps = numbers(name);
  return at < static_cast<int64_t>(gaps.size()) ? gaps[static_cast<size_t>(at)] : 0;
}

// One list of ids; ours may have more holes. A gap of 0 asks for equality.
void CaseComparison::ids(const std::string& name, const Numbers& got, const Numbers& want,
                         double gap) {
  const bool equal = without_holes(got) == without_holes(want);
  if (!equal && gap > 0 && gap < kUndecidedGap) {
    ++report_.undecided;
    return;
  }
  ++report_.compared;
  if (equal) return;
  fail(name, "wanted equal ids, found others");
}

void CaseComparison::id_rows(const StoredTensor& stored, const Numbers& got, Ids kind) {
  const int64_t n_rows = stored.view.dim(0);
  const Numbers want = to_numbers(stored.view);
  for (int64_t row = 0; row < n_rows; ++row) {
    const double g = kind == Ids::kFree ? gap(gap_name(stored.name), row) : 0;
    ids(stored.name + " row " + std::to_string(row), row_values(stored.name, got, row, n_rows),
        row_values(stored.name, want, row, n_rows), g);
  }
}

void CaseComparison::values(const std::string& name, const Numbers& got, const Numbers& want,
                            const Bound& bound) {
  if (!has_size(name, got, want.size())) return;
  // A whole step of the coarsest quantiser: FP4 codes are 4 and 6 sixths of the largest value.
  const double largest = largest_magnitude(want);
  const double whole =
      std::max({bound.absolute, bound.relative * largest, bound.one_step ? largest / 3 : 0});
  double worst = 0;
  int64_t n_different = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (got[i] == want[i]) continue;
    ++n_different;
    const double allowed = std::max(whole, bound.ulps * bf16_ulp(want[i]));
    const double error = std::fabs(got[i] - want[i]);
    worst = std::max(worst, std::isnan(error) ? INFINITY : error / allowed);
  }
  note(name, worst, 1.0);
  const auto allowed =
      std::max<int64_t>(1, std::llround(bound.fraction * static_cast<double>(want.size())));
  if (n_different > allowed) {
    fail(name, "wanted at most " + std::to_string(allowed) + " other values of " +
                   std::to_string(want.size()) + ", found " + std::to_string(n_different));
  }
}

void CaseComparison::layers(const std::string& prefix, const Shown& shown, bool free_caches) {
  for (const StoredTensor& stored : file_.tensors()) {
    if (!stored.name.starts_with(prefix) || stored.view.elements() == 0) continue;
    const std::string name = shown_name(stored.name.substr(prefix.size()));
    if (name.empty()) continue;
    const auto found = shown.find(name);
    if (found == shown.end()) {
      fail(stored.name, "the engine does not show it");
      continue;
    }
    if (stored.view.dtype == DType::kI32) {
      id_rows(stored, found->second, free_caches ? Ids::kFree : Ids::kForced);
      continue;
    }
    const std::string what = name.substr(name.find('.') + 1);
    const Bound bound = free_caches ? bounds_.free_running(what)
                                    : bounds_.layer_forced(what, stored.view.dtype == DType::kF32);
    values(stored.name, found->second, to_numbers(stored.view), bound);
  }
}

void CaseComparison::row(const std::string& prefix, const Shown& shown, const CaseRow& at) {
  for (const StoredTensor& stored : file_.tensors()) {
    if (!stored.name.starts_with(prefix) || stored.view.elements() == 0) continue;
    const std::string inner = stored.name.substr(prefix.size());
    if (inner == "moe_ids") row_of_experts(stored, shown, at);
    const std::string name = shown_name(inner);
    if (name.empty()) continue;
    const auto found = shown.find(name);
    if (found == shown.end()) {
      fail(stored.name, "the engine does not show it");
      continue;
    }
    const std::string where = stored.name + " row " + std::to_string(at.stored);
    const Numbers want = row_values(stored.name, to_numbers(stored.view), at.stored, at.n_stored);
    const Numbers got = row_values(stored.name, found->second, at.shown, at.n_shown);
    if (stored.view.dtype == DType::kI32) {
      ids(where, got, want, gap(prefix + gap_name(inner), at.stored));
    } else {
      values(where, got, want, CaseBounds::agreeing_row(name.substr(name.find('.') + 1)));
    }
  }
  row_of_residual(prefix, shown, at);
}

// moe_ids [row][layer][k]
void CaseComparison::row_of_experts(const StoredTensor& stored, const Shown& shown,
                                    const CaseRow& at) {
  const Numbers want = row_values(stored.name, to_numbers(stored.view), at.stored, at.n_stored);
  const int64_t n_layers = stored.view.rank < 2 ? 0 : stored.view.dim(stored.view.rank - 2);
  for (const auto& [name, all] : shown) {
    const std::optional<LayerName> layer = layer_name(name);
    if (!layer || layer->what != "moe.ids") continue;
    if (layer->layer >= n_layers) {
      return fail(stored.name, "wanted every layer, found " + std::to_string(n_layers));
    }
    ids(stored.name + " row " + std::to_string(at.stored) + " layer " +
            std::to_string(layer->layer),
        row_values(name, all, at.shown, at.n_shown),
        row_values(stored.name, want, layer->layer, n_layers),
        gap(gap_name(stored.name), at.stored * n_layers + layer->layer));
  }
}

// residual [row][layer][stream][channel], its layers and rows named where they are chosen.
void CaseComparison::row_of_residual(const std::string& prefix, const Shown& shown,
                                     const CaseRow& at) {
  const StoredTensor* stored = file_.find(prefix + "residual");
  if (stored == nullptr || stored->view.rank < 3) return;
  CaseRow row = at;
  const Numbers chosen = numbers(prefix + "residual_positions");
  if (!chosen.empty()) {
    const auto found = std::ranges::find(chosen, static_cast<double>(at.shown));
    if (found == chosen.end()) return;
    row.stored = found - chosen.begin();
    row.n_stored = static_cast<int64_t>(chosen.size());
  }
  const Numbers want = row_values(stored->name, to_numbers(stored->view), row.stored, row.n_stored);
  const Numbers layers = numbers(prefix + "residual_layers");
  const int64_t n_layers = stored->view.dim(stored->view.rank - 3);
  for (int64_t i = 0; i < n_layers; ++i) {
    const auto place = static_cast<size_t>(i);
    const int64_t layer = place < layers.size() ? static_cast<int64_t>(layers[place]) : i;
    const std::string name = (layer < 10 ? "L0" : "L") + std::to_string(layer) + ".out";
    const auto found = shown.find(name);
    if (found == shown.end()) {
      fail(stored->name, "wanted layers of the model, found " + std::to_string(layer));
      continue;
    }
    values(stored->name + " row " + std::to_string(row.stored) + " layer " + std::to_string(layer),
           row_values(name, found->second, row.shown, row.n_shown),
           row_values(stored->name, want, i, n_layers), CaseBounds::agreeing_row("out"));
  }
}

}  // namespace fathom
