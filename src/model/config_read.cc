// Reads a configuration from JSON, nested or flat. Unknown keys become warnings; a missing key, a
// wrong type or a number out of range is an error. Nothing of the nested spelling is defaulted that
// decides an output.

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <set>

#include "base/file.h"
#include "model/config.h"
#include "model/config_fields.h"
#include "text/json_output.h"
#include "text/quote.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr uint64_t kConfigBytesMax = 1 << 20;
constexpr size_t kListMax = 4096;
constexpr size_t kFoundTextMax = 60;

// The offending value as one short line.
std::string found_text(const json::value& value) {
  if (value.is_string()) return quote(std::string_view(value.get_string()));
  if (value.is_double() && std::isinf(value.get_double())) {
    return value.get_double() > 0 ? "Infinity" : "-Infinity";
  }
  std::string text = json_output(value);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  if (text.size() > kFoundTextMax) text = text.substr(0, kFoundTextMax) + "...";
  return text;
}

// A key as it is, quoted only where it is not fit for a line.
std::string found_key(std::string_view key) {
  const std::string shown = quote(key);
  return shown.substr(1, shown.size() - 2) == key ? std::string(key) : shown;
}

// Reads fields of one JSON object; keeps the first error.
class Reader {
 public:
  Reader(const json::object& object, std::string prefix, bool flat, ConfigFile& file)
      : object_(object), prefix_(std::move(prefix)), flat_(flat), file_(file) {}

  template <typename T>
  void field(const Key& key, T& member) {
    const char* name = flat_ && key.flat != nullptr ? key.flat : key.name;
    known_.insert(name);
    const json::value* value = object_.if_contains(name);
    if (value != nullptr) {
      read(name, *value, member);
    } else if (key.need == Need::kRequired || (key.need == Need::kNested && !flat_)) {
      fail(name, wanted(member), "nothing");
    }
  }

  // An id that may be null or absent: -1.
  void nullable(const Key& key, int64_t& member) {
    const char* name = flat_ && key.flat != nullptr ? key.flat : key.name;
    const json::value* value = object_.if_contains(name);
    if (value != nullptr && value->is_null()) {
      known_.insert(name);
      member = -1;
      return;
    }
    field(key, member);
  }

  template <typename T, typename Visit>
  void object(const char* name, T& member, Visit visit) {
    if (flat_) {
      visit(member, *this);
      return;
    }
    known_.insert(name);
    const json::value* value = object_.if_contains(name);
    if (value == nullptr || !value->is_object()) {
      fail(name, "an object", value == nullptr ? "nothing" : found_text(*value));
      return;
    }
    Reader inner(value->get_object(), prefix_ + name + ".", false, file_);
    visit(member, inner);
    inner.warn_unknown();
    if (error_.empty()) error_ = inner.error_;
  }

  void warn_unknown() {
    for (const auto& [key, value] : object_) {
      if (known_.contains(key)) continue;
      file_.warnings.push_back(prefix_ + found_key(std::string_view(key)) + ": unknown key");
    }
  }

  const std::string& error() const { return error_; }

 private:
  static std::string wanted(const int64_t&) { return "an integer"; }
  static std::string wanted(const double&) { return "a number"; }
  static std::string wanted(const std::optional<double>&) { return "a number or null"; }
  static std::string wanted(const bool&) { return "true or false"; }
  static std::string wanted(const std::string&) { return "a string"; }
  static std::string wanted(const std::vector<int64_t>&) { return "a list of integers"; }
  static std::string wanted(const std::vector<std::string>&) { return "a list of strings"; }

  static bool take(const json::value& value, int64_t& member) {
    if (value.is_int64()) return member = value.get_int64(), true;
    return false;
  }
  static bool take(const json::value& value, double& member) {
    if (value.is_int64()) return member = static_cast<double>(value.get_int64()), true;
    if (value.is_double() && std::isfinite(value.get_double())) {
      return member = value.get_double(), true;
    }
    return false;
  }
  static bool take(const json::value& value, std::optional<double>& member) {
    if (value.is_null()) return member = std::nullopt, true;
    double number = 0;
    if (!take(value, number)) return false;
    return member = number, true;
  }
  static bool take(const json::value& value, bool& member) {
    if (value.is_bool()) return member = value.get_bool(), true;
    return false;
  }
  static bool take(const json::value& value, std::string& member) {
    if (value.is_string()) return member = std::string(value.get_string()), true;
    return false;
  }
  template <typename T>
  static bool take(const json::value& value, std::vector<T>& member) {
    if (!value.is_array() || value.get_array().size() > kListMax) return false;
    member.clear();
    for (const json::value& element : value.get_array()) {
      T one = {};
      if (!take(element, one)) return false;
      member.push_back(std::move(one));
    }
    return true;
  }

  template <typename T>
  void read(const char* name, const json::value& value, T& member) {
    if (!take(value, member)) fail(name, wanted(member), found_text(value));
  }

  void fail(const char* name, const std::string& wanted, const std::string& found) {
    if (error_.empty()) error_ = prefix_ + name + ": wanted " + wanted + ", found " + found;
  }

  const json::object& object_;
  std::string prefix_;
  bool flat_;
  ConfigFile& file_;
  std::set<std::string, std::less<>> known_;
  std::string error_;
};

// The flat spelling carries the dtype of the reference program's matrices and its run-time limits.
json::object without_runtime_keys(const json::object& root) {
  json::object kept = root;
  for (const char* key : {"dtype", "gate_temp", "max_batch_size", "max_seq_len", "temperature"}) {
    kept.erase(key);
  }
  return kept;
}

}  // namespace

Result<ConfigFile> parse_config(std::string_view text, const std::string& where) {
  json::error_code failure;
  json::parse_options options;
  options.max_depth = 16;
  const json::value root = json::parse({text.data(), text.size()}, failure, {}, options);
  if (failure) return invalid(where + ": wanted JSON, found: " + failure.message());
  if (!root.is_object()) {
    return invalid(where + ": wanted a JSON object, found " + found_text(root));
  }
  const bool flat = !root.get_object().contains("text_config") && root.get_object().contains("dim");
  const json::object object = flat ? without_runtime_keys(root.get_object()) : root.get_object();
  ConfigFile file;
  Reader reader(object, "", flat, file);
  visit_root(file.config, reader);
  reader.warn_unknown();
  if (!reader.error().empty()) return invalid(where + ": " + reader.error());
  FATHOM_RETURN_IF_ERROR(validate_config(file.config, where));
  return file;
}

Result<ConfigFile> read_config(const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(const std::string text, read_file(path, kConfigBytesMax));
  return parse_config(text, path);
}

}  // namespace fathom
