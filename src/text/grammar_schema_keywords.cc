#include "text/grammar_schema_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "text/grammar_builder.h"
#include "text/quote.h"
#include "text/tool_schema.h"

namespace fathom {

Subject subject_of(std::string_view keyword) {
  constexpr std::array<std::pair<std::string_view, Subject>, 36> kSubjects = {{
      {"title", Subject::kAnnotation},
      {"description", Subject::kAnnotation},
      {"default", Subject::kAnnotation},
      {"examples", Subject::kAnnotation},
      {"deprecated", Subject::kAnnotation},
      {"discriminator", Subject::kAnnotation},  // OpenAPI's, beside a oneOf
      {"readOnly", Subject::kAnnotation},
      {"writeOnly", Subject::kAnnotation},
      {"$comment", Subject::kAnnotation},
      {"$schema", Subject::kAnnotation},
      {"$defs", Subject::kAnnotation},
      {"definitions", Subject::kAnnotation},
      {"$def", Subject::kAnnotation},
      {"type", Subject::kType},
      {"properties", Subject::kObject},
      {"required", Subject::kObject},
      {"additionalProperties", Subject::kObject},
      {"items", Subject::kArray},
      {"prefixItems", Subject::kArray},
      {"minItems", Subject::kArray},
      {"maxItems", Subject::kArray},
      {"uniqueItems", Subject::kArray},
      {"minLength", Subject::kString},
      {"maxLength", Subject::kString},
      {"pattern", Subject::kString},
      {"format", Subject::kString},
      {"minimum", Subject::kNumber},
      {"maximum", Subject::kNumber},
      {"exclusiveMinimum", Subject::kNumber},
      {"exclusiveMaximum", Subject::kNumber},
      {"$ref", Subject::kWhole},
      {"enum", Subject::kWhole},
      {"const", Subject::kWhole},
      {"anyOf", Subject::kWhole},
      {"oneOf", Subject::kWhole},
      {"allOf", Subject::kWhole},
  }};
  for (const auto& [name, subject] : kSubjects) {
    if (name == keyword) return subject;
  }
  return Subject::kUnknown;
}

Error refused(const std::string& path, const std::string& wanted, const std::string& found) {
  return invalid(one_line(path, 512) + ": wanted " + wanted + ", found " + found);
}

bool has_type(const Json& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.as_bool() != nullptr;
  if (type == "string") return value.as_string() != nullptr;
  if (type == "array") return value.as_array() != nullptr;
  if (type == "object") return value.as_object() != nullptr;
  const std::optional<double> number = number_of(value);
  if (type == "integer") return number && std::floor(*number) == *number;
  return type == "number" && number;
}

bool fits_type(const Json& value, const Json& type) {
  if (const std::string* name = type.as_string()) return has_type(value, *name);
  return std::ranges::any_of(*type.as_array(),
                             [&](const Json& name) { return has_type(value, *name.as_string()); });
}

Result<int64_t> count(const Json& schema, const char* keyword, int64_t absent,
                      const std::string& path) {
  const Json* value = schema.find(keyword);
  if (value == nullptr) return absent;
  const double number = *number_of(*value);
  if (number <= static_cast<double>(kGrammarCountMax)) return static_cast<int64_t>(number);
  return refused(path + "." + keyword, "at most " + std::to_string(kGrammarCountMax),
                 json_text(*value));
}

// What is read as a double has lost the digits of a longer literal.
Result<void> check_exact(const Json& value, const std::string& path) {
  constexpr double kAboveWhole = 0x1p64;
  constexpr double kBelowWhole = -0x1p63;
  if (const double* x = value.as_double()) {
    if (*x<kAboveWhole&& * x> kBelowWhole) return {};
    return refused(path, "numbers from -2^63 to 2^64 - 1", json_text(value));
  }
  for (size_t i = 0; value.as_array() != nullptr && i < value.as_array()->size(); ++i) {
    FATHOM_RETURN_IF_ERROR(
        check_exact((*value.as_array())[i], path + "[" + std::to_string(i) + "]"));
  }
  for (size_t i = 0; value.as_object() != nullptr && i < value.as_object()->size(); ++i) {
    const JsonMember& member = (*value.as_object())[i];
    FATHOM_RETURN_IF_ERROR(check_exact(member.value, path + "." + member.key));
  }
  return {};
}

}  // namespace fathom
