#include "eval/case_bounds.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "eval/case_names.h"

namespace fathom {
namespace {

namespace json = boost::json;

// More than any rounding does: such a bound would pass every value.
constexpr double kDeviationMax = 1000;

const json::object* object_at(const json::object& parent, std::string_view key) {
  const json::value* value = parent.if_contains(key);
  return value != nullptr && value->is_object() ? &value->get_object() : nullptr;
}

// Reads recorded deviations and keeps the first complaint.
class Recorded {
 public:
  double number(const json::value* value, const std::string& where, double max) {
    if (value == nullptr) return 0;
    const double found = value->is_number() ? value->to_number<double>() : -1;
    if (found >= 0 && found <= max) return found;
    wrong(where, "a number from 0 to " + std::to_string(static_cast<int64_t>(max)), value);
    return 0;
  }

  // The largest number below `key` in a value: a number itself, an object's, or an array's
  // entries'.
  double largest(const json::value* value, const char* key, const std::string& where) {
    if (value == nullptr) return 0;
    if (value->is_object()) {
      return number(value->get_object().if_contains(key), where + "." + key, kDeviationMax);
    }
    if (!value->is_array()) return number(value, where, kDeviationMax);
    double found = 0;
    for (const json::value& entry : value->get_array()) {
      if (!entry.is_array()) found = std::max(found, largest(&entry, key, where));
    }
    return found;
  }

  // The largest deviation that a case records for final logits.
  double logits(const json::object& entry, const char* what, const std::string& where) {
    double found = 0;
    for (const char* key :
         {"logit_deviation_other_sum_orders", "last_logit_deviation_other_sum_orders",
          "deviation_other_sum_orders", "independent_implementation_deviation"}) {
      found = std::max(found, largest(entry.if_contains(key), what, where + "." + key));
    }
    return found;
  }

  // Null: there is none, or it is none.
  const json::object* object(const json::value* value, const std::string& where) {
    if (value == nullptr || value->is_object())
      return value == nullptr ? nullptr : &value->get_object();
    wrong(where, "an object", value);
    return nullptr;
  }

  const std::string& complaint() const { return complaint_; }

 private:
  void wrong(const std::string& where, const std::string& wanted, const json::value* value) {
    if (!complaint_.empty()) return;
    complaint_ =
        printable(where) + ": wanted " + wanted + ", found " + printable(json::serialize(*value));
  }

  std::string complaint_;
};

}  // namespace

Result<CaseBounds> CaseBounds::read(const std::string& path) {
  CaseBounds bounds;
  FATHOM_ASSIGN_OR_RETURN(const bool is_there, has_file(path));
  if (!is_there) return bounds;
  FATHOM_ASSIGN_OR_RETURN(const std::string text, read_file(path, 64 << 20));
  boost::system::error_code code;
  const json::value root = json::parse(text, code);
  if (code) return invalid(path + ": wanted JSON, found " + code.message());
  const json::object* cases = root.is_object() ? object_at(root.get_object(), "cases") : nullptr;
  if (cases == nullptr || cases->empty()) {
    return invalid(path + ": cases: wanted an object of cases, found none");
  }
  Recorded recorded;
  for (const auto& [name, value] : *cases) {
    const std::string where = "cases." + std::string(name);
    const json::object* found = recorded.object(&value, where);
    if (found == nullptr) continue;
    const json::object& entry = *found;
    bounds.logits_[std::string(name)] = recorded.logits(entry, "max_abs", where);
    bounds.logits_rms_[std::string(name)] = recorded.logits(entry, "rms", where);
    for (const auto& [part, inner] : entry) {
      if (!inner.is_object()) continue;
      const std::string key = std::string(name) + "/" + std::string(part);
      bounds.logits_[key] = recorded.logits(inner.get_object(), "max_abs", "cases." + key);
    }
    const auto read = [&](const char* key, Deviations& deviations) {
      const std::string place = where + "." + key;
      const json::object* ones = recorded.object(entry.if_contains(key), place);
      if (ones == nullptr) return;
      for (const auto& [tensor, deviation] : *ones) {
        const std::string at = place + "." + std::string(tensor);
        const json::object* d = recorded.object(&deviation, at);
        if (d == nullptr) continue;
        constexpr const char* kFraction = "max_fraction_of_elements_differing";
        deviations[std::string(tensor)] = {
            .max_abs = recorded.largest(&deviation, "max_abs", at),
            .fraction = recorded.number(d->if_contains(kFraction), at + "." + kFraction, 1)};
      }
    };
    read("layer_forced_deviation_other_sum_orders", bounds.layer_forced_);
    read("tensor_deviation_other_sum_orders", bounds.free_running_);
  }
  if (!recorded.complaint().empty()) return invalid(path + ": " + recorded.complaint());
  return bounds;
}

// FP32 scores record their own deviation only in part; the other sum orders are those of the case
// with BF16 scores.
double CaseBounds::recorded(const std::map<std::string, double>& of, const std::string& case_name,
                            const std::string& part) const {
  const auto find = [&](const std::string& name) {
    const auto it = of.find(part.empty() ? name : name + "/" + part);
    return it == of.end() ? 0.0 : it->second;
  };
  constexpr std::string_view kSuffix = "_fp32score";
  if (!case_name.ends_with(kSuffix)) return find(case_name);
  const std::string plain = case_name.substr(0, case_name.size() - kSuffix.size());
  return std::max(find(case_name), find(plain));
}

double CaseBounds::logits(const std::string& case_name, const std::string& part) const {
  return std::max(1e-3, 4 * recorded(logits_, case_name, part));
}

double CaseBounds::logits_rms(const std::string& case_name) const {
  return std::max(0.15, 3 * recorded(logits_rms_, case_name, ""));
}

Bound CaseBounds::free_running(std::string_view name) const {
  const auto it = free_running_.find(name);
  Bound bound = agreeing_row(name);
  bound.absolute = it == free_running_.end() ? 0.01 : std::max(1e-3, 4 * it->second.max_abs);
  return bound;
}

Bound CaseBounds::agreeing_row(std::string_view name) {
  return {.absolute = 1e-3, .relative = 0.02, .ulps = 2, .one_step = is_quantised(name)};
}

Bound CaseBounds::layer_forced(std::string_view name, bool is_float32) const {
  const auto it = layer_forced_.find(name);
  const Deviation recorded = it == layer_forced_.end() ? Deviation{} : it->second;
  if (name == "out" || name == "mid") return {.absolute = 0.032, .ulps = 2, .fraction = 0.02};
  if (is_float32) {
    // Coefficients and gates that are computed straight from a stored input.
    const bool straight = name.starts_with("hc_attn.") || name == "engram.gate";
    return {.absolute = std::max(straight ? 1e-5 : 6e-3, 4 * recorded.max_abs)};
  }
  return {.absolute = 4 * recorded.max_abs,
          .relative = 0.01,
          .ulps = 2,
          .one_step = is_quantised(name),
          .fraction = std::max(0.05, 4 * recorded.fraction)};
}

}  // namespace fathom
