#include "ops/cuda/fast_weights.h"

#include "ops/cuda/pack.h"
#include "ops/cuda/value_product.h"

namespace fathom::cuda {
namespace {

// Widths below this gain nothing and keep the bits of the CPU.
constexpr int64_t kLeastWidth = 1024;
// Of a weight's values, those that rebasing may change.
constexpr double kMostChanged = 1e-3;

const uint8_t* bytes(const Tensor& t) { return static_cast<const uint8_t*>(t.data); }

bool fits(const Weight& w, WeightFormat format) {
  return w.format == format && w.data.is_dense() && w.scale.is_dense() &&
         w.out() % kPackedRows == 0 && w.in() % kUnitColumns == 0 && w.in() >= kLeastWidth;
}

bool fits(const ExpertWeights& e, WeightFormat format) {
  return fits(e.w1, format) && fits(e.w3, format) && fits(e.w2, format);
}

bool few(uint64_t changed, int64_t values) {
  return static_cast<double>(changed) <= kMostChanged * static_cast<double>(values);
}

int64_t fp4_bytes(int64_t out, int64_t in) {
  return out / kPackedRows * (in / kUnitColumns) * kFp4UnitBytes;
}

}  // namespace

Result<unsigned long long*> FastWeights::counter() {
  if (changed_.data() == nullptr) {
    FATHOM_ASSIGN_OR_RETURN(changed_, memory_.allocate(sizeof(unsigned long long), "counter"));
  }
  return reinterpret_cast<unsigned long long*>(changed_.data());
}

Result<uint64_t> FastWeights::take_changed() {
  uint64_t changed = 0;
  memory_.read(&changed, changed_.data(), sizeof changed);
  const uint64_t none = 0;
  memory_.write(changed_.data(), &none, sizeof none);
  FATHOM_RETURN_IF_ERROR(memory_.sync());
  report_.changed += changed;
  return changed;
}

Result<void> FastWeights::add(const Weight& w) {
  if (const auto old = dense_.find(w.data.data); old != dense_.end()) {
    report_.bytes -= old->second.units.bytes();
    --report_.fast;
    dense_.erase(old);
  }
  if (!fits(w, WeightFormat::kFp8Block32)) {
    ++report_.exact;
    return {};
  }
  FATHOM_ASSIGN_OR_RETURN(unsigned long long* const changed, counter());
  const auto n = static_cast<int>(w.out());
  const auto k = static_cast<int>(w.in());
  Dense packed = {.out = w.out(), .in = w.in(), .units = {}};
  FATHOM_ASSIGN_OR_RETURN(
      packed.units, memory_.allocate(static_cast<int64_t>(dense_bytes(n, k)), "packed weight"));
  memory_.check(pack_dense({.codes = bytes(w.data),
                            .scales = bytes(w.scale),
                            .n = n,
                            .k = k,
                            .units = reinterpret_cast<uint8_t*>(packed.units.data()),
                            .changed = changed},
                           memory_.stream()),
                "pack");
  FATHOM_ASSIGN_OR_RETURN(const uint64_t n_changed, take_changed());
  if (!few(n_changed, w.data.elements())) {
    ++report_.exact;
    return {};
  }
  ++report_.fast;
  report_.bytes += packed.units.bytes();
  dense_.emplace(w.data.data, std::move(packed));
  return {};
}

// Gate and up matrix of a shared expert as one; no memory where they keep the exact kernels.
Result<Buffer> FastWeights::pack_pair(const ExpertWeights& shared) {
  FATHOM_ASSIGN_OR_RETURN(unsigned long long* const changed, counter());
  const auto n = static_cast<int>(2 * shared.w1.out());
  const auto k = static_cast<int>(shared.w1.in());
  FATHOM_ASSIGN_OR_RETURN(Buffer units, memory_.allocate(static_cast<int64_t>(dense_bytes(n, k)),
                                                         "packed shared expert"));
  memory_.check(pack_dense({.codes = bytes(shared.w1.data),
                            .scales = bytes(shared.w1.scale),
                            .up_codes = bytes(shared.w3.data),
                            .up_scales = bytes(shared.w3.scale),
                            .n = n,
                            .k = k,
                            .units = reinterpret_cast<uint8_t*>(units.data()),
                            .changed = changed},
                           memory_.stream()),
                "pack");
  FATHOM_ASSIGN_OR_RETURN(const uint64_t n_changed, take_changed());
  if (!few(n_changed, 2 * shared.w1.data.elements())) return Buffer();
  return units;
}

Result<void> FastWeights::pack_layer(std::span<const ExpertWeights> experts, Layer& layer) {
  const int64_t n_experts = static_cast<int64_t>(experts.size());
  const int64_t width = experts[0].w1.out();
  const int64_t hidden = experts[0].w1.in();
  const int64_t up = fp4_bytes(2 * width, hidden);
  const int64_t down = fp4_bytes(hidden, width);
  const int64_t scale_floats = 2 * width + hidden;
  FATHOM_ASSIGN_OR_RETURN(
      layer.memory, memory_.allocate(n_experts * (up + down + scale_floats * 4), "packed experts"));
  FATHOM_ASSIGN_OR_RETURN(unsigned long long* const changed, counter());
  auto* up_units = reinterpret_cast<uint8_t*>(layer.memory.data());
  uint8_t* down_units = up_units + n_experts * up;
  auto* up_scales = reinterpret_cast<float*>(down_units + n_experts * down);
  float* down_scales = up_scales + n_experts * 2 * width;
  for (int64_t e = 0; e < n_experts; ++e) {
    const ExpertWeights& w = experts[static_cast<size_t>(e)];
    memory_.check(pack_fp4({.codes = bytes(w.w1.data),
                            .scales = bytes(w.w1.scale),
                            .up_codes = bytes(w.w3.data),
                            .up_scales = bytes(w.w3.scale),
                            .n = static_cast<int>(2 * width),
                            .k = static_cast<int>(hidden),
                            .units = up_units + e * up,
                            .row_scales = up_scales + e * 2 * width,
                            .changed = changed},
                           memory_.stream()),
                  "pack");
    memory_.check(pack_fp4({.codes = bytes(w.w2.data),
                            .scales = bytes(w.w2.scale),
                            .n = static_cast<int>(hidden),
                            .k = static_cast<int>(width),
                            .units = down_units + e * down,
                            .row_scales = down_scales + e * hidden,
                            .changed = changed},
                           memory_.stream()),
                  "pack");
  }
  FATHOM_ASSIGN_OR_RETURN(const uint64_t n_changed, take_changed());
  if (!few(n_changed, n_experts * 3 * width * hidden)) {
    layer.memory = Buffer();
    return {};
  }
  layer.view = {.gate_up_units = up_units,
                .gate_up_scales = up_scales,
                .down_units = down_units,
                .down_scales = down_scales};
  return {};
}

Result<void> FastWeights::add(std::span<const ExpertWeights> experts, const ExpertWeights& shared) {
  pairs_.erase(shared.w1.data.data);
  layers_.erase(experts.data());
  FATHOM_RETURN_IF_ERROR(add(shared.w2));
  const auto n_matrices = static_cast<int64_t>(3 * experts.size() + 2);
  bool fit = fits(shared, WeightFormat::kFp8Block32);
  for (const ExpertWeights& e : experts) fit = fit && fits(e, WeightFormat::kFp4Row32);
  const uint8_t* shared_down = dense(shared.w2);
  if (!fit || shared_down == nullptr) {
    report_.exact += n_matrices;
    return {};
  }
  FATHOM_ASSIGN_OR_RETURN(Buffer pair, pack_pair(shared));
  Layer layer;
  if (pair.data() != nullptr) FATHOM_RETURN_IF_ERROR(pack_layer(experts, layer));
  if (layer.memory.data() == nullptr) {
    report_.exact += n_matrices;
    return {};
  }
  layer.view.shared_pair_units = reinterpret_cast<const uint8_t*>(pair.data());
  layer.view.shared_down_units = shared_down;
  report_.fast += n_matrices;
  report_.bytes += pair.bytes() + layer.memory.bytes();
  pairs_.emplace(shared.w1.data.data, Dense{.units = std::move(pair)});
  layers_.emplace(experts.data(), std::move(layer));
  return {};
}

Result<void> FastWeights::add_values(const Weight& w) {
  if (const auto old = values_.find(w.data.data); old != values_.end()) {
    report_.bytes -= old->second.units.bytes();
    --report_.fast;
    values_.erase(old);
  }
  const bool codes = w.format == WeightFormat::kFp8Block32;
  const bool known = codes ? w.scale.is_dense() && w.out() % 32 == 0 && w.in() % 32 == 0
                           : w.format == WeightFormat::kBf16;
  if (!known || !w.data.is_dense() || w.out() % kPackedRows != 0 || w.in() % 64 != 0 ||
      w.in() < kLeastWidth) {
    ++report_.exact;
    return {};
  }
  const auto n = static_cast<int>(w.out());
  const auto k = static_cast<int>(w.in());
  Dense packed = {.out = w.out(), .in = w.in(), .units = {}};
  FATHOM_ASSIGN_OR_RETURN(
      packed.units, memory_.allocate(static_cast<int64_t>(value_bytes(n, k)), "packed weight"));
  memory_.check(pack_values({.values = codes ? nullptr : static_cast<const uint16_t*>(w.data.data),
                             .codes = codes ? bytes(w.data) : nullptr,
                             .scales = codes ? bytes(w.scale) : nullptr,
                             .n = n,
                             .k = k,
                             .units = reinterpret_cast<uint8_t*>(packed.units.data())},
                            memory_.stream()),
                "pack");
  FATHOM_RETURN_IF_ERROR(memory_.sync());
  ++report_.fast;
  report_.bytes += packed.units.bytes();
  values_.emplace(w.data.data, std::move(packed));
  return {};
}

const uint8_t* FastWeights::dense(const Weight& w) const { return units_of(dense_, w); }

const uint8_t* FastWeights::values(const Weight& w) const { return units_of(values_, w); }

const uint8_t* FastWeights::units_of(const std::map<const void*, Dense>& all, const Weight& w) {
  const auto found = all.find(w.data.data);
  if (found == all.end()) return nullptr;
  const Dense& packed = found->second;
  if (packed.out != w.out() || packed.in != w.in()) return nullptr;
  return reinterpret_cast<const uint8_t*>(packed.units.data());
}

const FastExperts* FastWeights::experts(std::span<const ExpertWeights> experts) const {
  const auto found = layers_.find(experts.data());
  return found == layers_.end() ? nullptr : &found->second.view;
}

}  // namespace fathom::cuda
