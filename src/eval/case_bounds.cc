#include "eval/case_bounds.h"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>

#include "base/file.h"

namespace fathom {
namespace {

namespace json = boost::json;

double number(const json::value* value) {
  if (value == nullptr || !value->is_number()) return 0;
  return value->to_number<double>();
}

double max_abs(const json::value* value) {
  if (value == nullptr) return 0;
  if (value->is_number()) return number(value);
  if (value->is_object()) return number(value->get_object().if_contains("max_abs"));
  double largest = 0;
  if (value->is_array()) {
    for (const json::value& entry : value->get_array())
      largest = std::max(largest, max_abs(&entry));
  }
  return largest;
}

// The largest deviation that a case records for final logits.
double recorded(const json::object& entry) {
  double largest = 0;
  for (const char* key :
       {"logit_deviation_other_sum_orders", "last_logit_deviation_other_sum_orders",
        "deviation_other_sum_orders", "independent_implementation_deviation"}) {
    largest = std::max(largest, max_abs(entry.if_contains(key)));
  }
  return largest;
}

const json::object* object_at(const json::object& parent, std::string_view key) {
  const json::value* value = parent.if_contains(key);
  return value != nullptr && value->is_object() ? &value->get_object() : nullptr;
}

}  // namespace

Result<CaseBounds> CaseBounds::read(const std::string& path) {
  CaseBounds bounds;
  if (!std::filesystem::exists(path)) return bounds;
  FATHOM_ASSIGN_OR_RETURN(const std::string text, read_file(path, 64 << 20));
  boost::system::error_code code;
  const json::value root = json::parse(text, code);
  if (code) return invalid(path + ": wanted JSON, found " + code.message());
  const json::object* cases = root.is_object() ? object_at(root.get_object(), "cases") : nullptr;
  if (cases == nullptr) return invalid(path + ": cases: wanted an object, found none");
  for (const auto& [name, value] : *cases) {
    if (!value.is_object()) continue;
    const json::object& entry = value.get_object();
    bounds.logits_[std::string(name)] = recorded(entry);
    for (const auto& [part, inner] : entry) {
      if (inner.is_object()) {
        bounds.logits_[std::string(name) + "/" + std::string(part)] = recorded(inner.get_object());
      }
    }
    const auto read = [&](const char* key, Deviations& deviations) {
      const json::object* recorded_ones = object_at(entry, key);
      if (recorded_ones == nullptr) return;
      for (const auto& [tensor, deviation] : *recorded_ones) {
        if (!deviation.is_object()) continue;
        const json::object& d = deviation.get_object();
        deviations[std::string(tensor)] = {
            .max_abs = max_abs(&deviation),
            .fraction = number(d.if_contains("max_fraction_of_elements_differing"))};
      }
    };
    read("layer_forced_deviation_other_sum_orders", bounds.layer_forced_);
    read("tensor_deviation_other_sum_orders", bounds.free_running_);
  }
  return bounds;
}

double CaseBounds::logits(const std::string& case_name, const std::string& part) const {
  const auto find = [&](const std::string& key) {
    const auto it = logits_.find(key);
    return it == logits_.end() ? 0.0 : it->second;
  };
  double recorded = find(part.empty() ? case_name : case_name + "/" + part);
  // FP32 scores record their own deviation only in part; the other sum orders are those of the case
  // with BF16 scores.
  const std::string suffix = "_fp32score";
  if (case_name.ends_with(suffix)) {
    recorded = std::max(recorded, find(case_name.substr(0, case_name.size() - suffix.size())));
  }
  return std::max(1e-3, 4 * recorded);
}

Bound CaseBounds::free_running(std::string_view name) const {
  const auto it = free_running_.find(name);
  if (it == free_running_.end()) return {};
  return {.absolute = std::max(1e-3, 4 * it->second.max_abs), .ulps = 2};
}

Bound CaseBounds::layer_forced(std::string_view name, bool is_float32) const {
  if (layer_forced_.empty()) return {};
  const auto it = layer_forced_.find(name);
  const Deviation recorded = it == layer_forced_.end() ? Deviation{} : it->second;
  if (name == "out" || name == "mid") return {.absolute = 0.032, .fraction = 0.02};
  if (is_float32) return {.absolute = std::max(1e-5, 4 * recorded.max_abs)};
  return {.absolute = 4 * recorded.max_abs,
          .ulps = 2,
          .fraction = std::max(0.02, 4 * recorded.fraction)};
}

}  // namespace fathom
