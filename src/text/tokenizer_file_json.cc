#include "text/tokenizer_file_json.h"

#include <fmt/format.h>

#include "text/json_output.h"
#include "text/quote.h"

namespace fathom {
namespace {

namespace json = boost::json;

std::string path_of(std::string_view where, std::string_view key) {
  return where.empty() ? std::string(key) : fmt::format("{}.{}", where, key);
}

// What stands there, for "wanted a string, found ...".
std::string describe(const json::value& value) {
  if (const json::string* text = value.if_string()) {
    return "the string " + quote({text->data(), text->size()});
  }
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  return json_output(value);
}

}  // namespace

Error JsonSource::error(std::string_view where, std::string_view what) const {
  return invalid(fmt::format("{}: {}: {}", name_, where, what));
}

Result<json::value> JsonSource::parse(std::string_view text,
                                      json::monotonic_resource* memory) const {
  json::parser parser(memory);
  json::error_code failure;
  const size_t n_read = parser.write_some(text.data(), text.size(), failure);
  if (failure) {
    return invalid(fmt::format("{}: byte {} of {}: not JSON: {}", name_, n_read, text.size(),
                               failure.message()));
  }
  const size_t rest = text.find_first_not_of(" \t\r\n", n_read);
  if (rest != text.npos) {
    return invalid(
        fmt::format("{}: byte {} of {}: text after the JSON value", name_, rest, text.size()));
  }
  return parser.release();
}

Result<const json::object*> JsonSource::as_object(const json::value& value,
                                                  std::string_view where) const {
  if (const json::object* object = value.if_object()) return object;
  return error(where, "wanted an object, found " + describe(value));
}

Result<const json::array*> JsonSource::as_array(const json::value& value,
                                                std::string_view where) const {
  if (const json::array* array = value.if_array()) return array;
  return error(where, "wanted an array, found " + describe(value));
}

Result<int64_t> JsonSource::integer(const json::value& value, std::string_view where, int64_t min,
                                    int64_t max) const {
  const int64_t* number = value.if_int64();
  if (number != nullptr && *number >= min && *number <= max) return *number;
  return error(where,
               fmt::format("wanted an integer from {} to {}, found {}", min, max, describe(value)));
}

Result<const json::value*> JsonSource::field(const json::object& parent, std::string_view where,
                                             std::string_view key) const {
  if (const json::value* value = parent.if_contains(key)) return value;
  return error(path_of(where, key), "is missing");
}

Result<const json::object*> JsonSource::object(const json::object& parent, std::string_view where,
                                               std::string_view key) const {
  FATHOM_ASSIGN_OR_RETURN(const json::value* value, field(parent, where, key));
  return as_object(*value, path_of(where, key));
}

Result<const json::array*> JsonSource::array(const json::object& parent, std::string_view where,
                                             std::string_view key) const {
  FATHOM_ASSIGN_OR_RETURN(const json::value* value, field(parent, where, key));
  return as_array(*value, path_of(where, key));
}

Result<std::string_view> JsonSource::string(const json::object& parent, std::string_view where,
                                            std::string_view key) const {
  FATHOM_ASSIGN_OR_RETURN(const json::value* value, field(parent, where, key));
  const json::string* text = value->if_string();
  if (text != nullptr) return std::string_view{text->data(), text->size()};
  return error(path_of(where, key), "wanted a string, found " + describe(*value));
}

Result<bool> JsonSource::boolean(const json::object& parent, std::string_view where,
                                 std::string_view key) const {
  FATHOM_ASSIGN_OR_RETURN(const json::value* value, field(parent, where, key));
  if (const bool* flag = value->if_bool()) return *flag;
  return error(path_of(where, key), "wanted true or false, found " + describe(*value));
}

Result<int64_t> JsonSource::integer(const json::object& parent, std::string_view where,
                                    std::string_view key, int64_t min, int64_t max) const {
  FATHOM_ASSIGN_OR_RETURN(const json::value* value, field(parent, where, key));
  return integer(*value, path_of(where, key), min, max);
}

namespace {

bool is_absent(const json::object& parent, std::string_view key) {
  const json::value* value = parent.if_contains(key);
  return value == nullptr || value->is_null();
}

// `key` must be absent, null, false or the empty string.
Result<void> check_unset(const JsonSource& source, const json::object& parent,
                         std::string_view where, std::string_view key) {
  if (is_absent(parent, key)) return {};
  const json::value& value = *parent.if_contains(key);
  if (value == false || (value.is_string() && value.get_string().empty())) return {};
  return source.error(path_of(where, key),
                      "is " + describe(value) + ", supported is null or false");
}

Result<void> check_type(const JsonSource& source, const json::object& parent,
                        std::string_view where, std::string_view wanted) {
  FATHOM_ASSIGN_OR_RETURN(const std::string_view type, source.string(parent, where, "type"));
  if (type == wanted) return {};
  return source.error(path_of(where, "type"),
                      fmt::format("is {}, supported is {}", quote(type), quote(wanted)));
}

Result<void> check_normalizer(const JsonSource& source, const json::object& root) {
  if (is_absent(root, "normalizer")) return {};
  FATHOM_ASSIGN_OR_RETURN(const json::object* object, source.object(root, "", "normalizer"));
  FATHOM_RETURN_IF_ERROR(check_type(source, *object, "normalizer", "Sequence"));
  FATHOM_ASSIGN_OR_RETURN(const json::array* steps,
                          source.array(*object, "normalizer", "normalizers"));
  if (steps->empty()) return {};
  return source.error("normalizer.normalizers",
                      fmt::format("has {} steps, supported is none", steps->size()));
}

// The pattern of a ByteLevel step with use_regex, as GPT-2 defined it.
constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Result<void> read_byte_level(const JsonSource& source, const json::object& step,
                             const std::string& where, std::vector<std::string>* patterns) {
  FATHOM_ASSIGN_OR_RETURN(const bool prefix, source.boolean(step, where, "add_prefix_space"));
  if (prefix) return source.error(where + ".add_prefix_space", "is true, supported is false");
  if (step.if_contains("use_regex") == nullptr) return {};
  FATHOM_ASSIGN_OR_RETURN(const bool use_regex, source.boolean(step, where, "use_regex"));
  if (use_regex) patterns->emplace_back(kGpt2Pattern);
  return {};
}

Result<void> read_split(const JsonSource& source, const json::object& step,
                        const std::string& where, std::vector<std::string>* patterns) {
  FATHOM_RETURN_IF_ERROR(check_type(source, step, where, "Split"));
  FATHOM_ASSIGN_OR_RETURN(const std::string_view behavior, source.string(step, where, "behavior"));
  if (behavior != "Isolated") {
    return source.error(where + ".behavior", quote(behavior) + ", supported is \"Isolated\"");
  }
  FATHOM_RETURN_IF_ERROR(check_unset(source, step, where, "invert"));
  FATHOM_ASSIGN_OR_RETURN(const json::object* pattern, source.object(step, where, "pattern"));
  FATHOM_ASSIGN_OR_RETURN(const std::string_view regex,
                          source.string(*pattern, where + ".pattern", "Regex"));
  patterns->emplace_back(regex);
  return {};
}

}  // namespace

Result<bool> check_supported(const JsonSource& source, const json::object& root,
                             const json::object& model) {
  for (const std::string_view key : {"truncation", "padding"}) {
    FATHOM_RETURN_IF_ERROR(check_unset(source, root, "", key));
  }
  FATHOM_RETURN_IF_ERROR(check_normalizer(source, root));
  FATHOM_ASSIGN_OR_RETURN(const json::object* decoder, source.object(root, "", "decoder"));
  FATHOM_RETURN_IF_ERROR(check_type(source, *decoder, "decoder", "ByteLevel"));
  FATHOM_RETURN_IF_ERROR(check_type(source, model, "model", "BPE"));
  for (const std::string_view key : {"dropout", "unk_token", "continuing_subword_prefix",
                                     "end_of_word_suffix", "fuse_unk", "byte_fallback"}) {
    FATHOM_RETURN_IF_ERROR(check_unset(source, model, "model", key));
  }
  if (is_absent(model, "ignore_merges")) return false;
  return source.boolean(model, "model", "ignore_merges");
}

Result<std::vector<std::string>> read_split_patterns(const JsonSource& source,
                                                     const json::object& root) {
  FATHOM_ASSIGN_OR_RETURN(const json::object* top, source.object(root, "", "pre_tokenizer"));
  FATHOM_ASSIGN_OR_RETURN(const std::string_view top_type,
                          source.string(*top, "pre_tokenizer", "type"));
  std::vector<std::string> patterns;
  if (top_type == "ByteLevel") {
    FATHOM_RETURN_IF_ERROR(read_byte_level(source, *top, "pre_tokenizer", &patterns));
    return patterns;
  }
  FATHOM_RETURN_IF_ERROR(check_type(source, *top, "pre_tokenizer", "Sequence"));
  FATHOM_ASSIGN_OR_RETURN(const json::array* steps,
                          source.array(*top, "pre_tokenizer", "pretokenizers"));
  bool has_byte_level = false;
  for (size_t i = 0; i < steps->size(); ++i) {
    const std::string where = fmt::format("pre_tokenizer.pretokenizers[{}]", i);
    FATHOM_ASSIGN_OR_RETURN(const json::object* step, source.as_object((*steps)[i], where));
    FATHOM_ASSIGN_OR_RETURN(const std::string_view type, source.string(*step, where, "type"));
    if (has_byte_level) return source.error(where, "stands after the ByteLevel step");
    has_byte_level = type == "ByteLevel";
    FATHOM_RETURN_IF_ERROR(has_byte_level ? read_byte_level(source, *step, where, &patterns)
                                          : read_split(source, *step, where, &patterns));
  }
  if (!has_byte_level) {
    return source.error("pre_tokenizer.pretokenizers", "has no ByteLevel step");
  }
  return patterns;
}

}  // namespace fathom
