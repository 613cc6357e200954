#include "text/tool_schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "text/quote.h"

namespace fathom {
namespace {

// What the value of a schema keyword must be.
enum class Shape : uint8_t {
  kSchema,
  kItems,  // a schema, or in drafts before 2020-12 an array of schemas
  kSchemaList,
  kSchemaMap,
  kDependencies,  // each a schema or a list of strings
  kString,
  kStringList,  // without repeats
  kStringListMap,
  kList,
  kBoolean,
  kNumber,
  kPositive,
  kCount,  // a whole number from 0 up
  kType,
  kReference,
  kObject,
};

struct Keyword {
  std::string_view name;
  Shape shape;
};

constexpr std::array kKeywords = {
    Keyword{"$id", Shape::kString},
    Keyword{"$schema", Shape::kString},
    Keyword{"$ref", Shape::kReference},
    Keyword{"$anchor", Shape::kString},
    Keyword{"$dynamicAnchor", Shape::kString},
    Keyword{"$vocabulary", Shape::kObject},
    Keyword{"$comment", Shape::kString},
    Keyword{"$defs", Shape::kSchemaMap},
    Keyword{"definitions", Shape::kSchemaMap},
    Keyword{"prefixItems", Shape::kSchemaList},
    Keyword{"items", Shape::kItems},
    Keyword{"contains", Shape::kSchema},
    Keyword{"additionalProperties", Shape::kSchema},
    Keyword{"properties", Shape::kSchemaMap},
    Keyword{"patternProperties", Shape::kSchemaMap},
    Keyword{"dependentSchemas", Shape::kSchemaMap},
    Keyword{"dependencies", Shape::kDependencies},
    Keyword{"propertyNames", Shape::kSchema},
    Keyword{"if", Shape::kSchema},
    Keyword{"then", Shape::kSchema},
    Keyword{"else", Shape::kSchema},
    Keyword{"allOf", Shape::kSchemaList},
    Keyword{"anyOf", Shape::kSchemaList},
    Keyword{"oneOf", Shape::kSchemaList},
    Keyword{"not", Shape::kSchema},
    Keyword{"unevaluatedItems", Shape::kSchema},
    Keyword{"unevaluatedProperties", Shape::kSchema},
    Keyword{"type", Shape::kType},
    Keyword{"enum", Shape::kList},
    Keyword{"multipleOf", Shape::kPositive},
    Keyword{"maximum", Shape::kNumber},
    Keyword{"exclusiveMaximum", Shape::kNumber},
    Keyword{"minimum", Shape::kNumber},
    Keyword{"exclusiveMinimum", Shape::kNumber},
    Keyword{"maxLength", Shape::kCount},
    Keyword{"minLength", Shape::kCount},
    Keyword{"pattern", Shape::kString},
    Keyword{"maxItems", Shape::kCount},
    Keyword{"minItems", Shape::kCount},
    Keyword{"uniqueItems", Shape::kBoolean},
    Keyword{"maxContains", Shape::kCount},
    Keyword{"minContains", Shape::kCount},
    Keyword{"maxProperties", Shape::kCount},
    Keyword{"minProperties", Shape::kCount},
    Keyword{"required", Shape::kStringList},
    Keyword{"dependentRequired", Shape::kStringListMap},
    Keyword{"title", Shape::kString},
    Keyword{"description", Shape::kString},
    Keyword{"deprecated", Shape::kBoolean},
    Keyword{"readOnly", Shape::kBoolean},
    Keyword{"writeOnly", Shape::kBoolean},
    Keyword{"examples", Shape::kList},
    Keyword{"format", Shape::kString},
    Keyword{"contentEncoding", Shape::kString},
    Keyword{"contentMediaType", Shape::kString},
    Keyword{"contentSchema", Shape::kSchema},
};

constexpr std::array<std::string_view, 7> kTypeNames = {"object",  "string", "number", "integer",
                                                        "boolean", "array",  "null"};

// A number of the wrong size or form: the number is what tells.
Error wrong_number(const std::string& where, const std::string& wanted, const Json& found) {
  return invalid(where + ": wanted " + wanted + ", found " +
                 (found.is_number() ? json_text(found) : std::string(found.kind_name())));
}

Error wrong(const std::string& where, const std::string& wanted, const Json& found) {
  const std::string* text = found.as_string();
  return invalid(where + ": wanted " + wanted + ", found " +
                 (text != nullptr ? quote(*text) : std::string(found.kind_name())));
}

class SchemaCheck {
 public:
  explicit SchemaCheck(const Json& root) : root_(root) {
    const Json* draft = root.find("$schema");
    const std::string* uri = draft != nullptr ? draft->as_string() : nullptr;
    item_lists_ = uri != nullptr && uri->find("draft-0") != std::string::npos;
  }

  Result<void> check(const Json& schema, const std::string& where) {
    if (schema.as_bool() != nullptr) return {};
    const JsonObject* members = schema.as_object();
    if (members == nullptr) return wrong(where, "a schema (an object or a boolean)", schema);
    for (const JsonMember& member : *members) {
      const auto* keyword = std::find_if(
          kKeywords.begin(), kKeywords.end(),
          [&member](const Keyword& candidate) { return candidate.name == member.key; });
      if (keyword == kKeywords.end()) continue;
      FATHOM_RETURN_IF_ERROR(check_shape(keyword->shape, member.value, where + "." + member.key));
    }
    return {};
  }

 private:
  Result<void> check_shape(Shape shape, const Json& value, const std::string& where) {
    switch (shape) {
      case Shape::kSchema:
        return check(value, where);
      case Shape::kItems:
        if (item_lists_ && value.as_array() != nullptr) return check_each(value, where);
        return check(value, where);
      case Shape::kSchemaList:
        if (value.as_array() == nullptr || value.as_array()->empty()) {
          return wrong(where, "an array with at least one schema", value);
        }
        return check_each(value, where);
      case Shape::kSchemaMap:
      case Shape::kDependencies:
      case Shape::kStringListMap:
        return check_map(shape, value, where);
      default:
        return check_leaf(shape, value, where);
    }
  }

  Result<void> check_each(const Json& list, const std::string& where) {
    for (size_t i = 0; i < list.as_array()->size(); ++i) {
      FATHOM_RETURN_IF_ERROR(check((*list.as_array())[i], where + "[" + std::to_string(i) + "]"));
    }
    return {};
  }

  Result<void> check_map(Shape shape, const Json& value, const std::string& where) {
    if (value.as_object() == nullptr) return wrong(where, "an object", value);
    for (const JsonMember& member : *value.as_object()) {
      const bool list = shape == Shape::kStringListMap ||
                        (shape == Shape::kDependencies && member.value.as_array() != nullptr);
      FATHOM_RETURN_IF_ERROR(check_shape(list ? Shape::kStringList : Shape::kSchema, member.value,
                                         where + "." + member.key));
    }
    return {};
  }

  Result<void> check_leaf(Shape shape, const Json& value, const std::string& where) {
    const std::optional<double> number = number_of(value);
    switch (shape) {
      case Shape::kString:
        if (value.as_string() == nullptr) return wrong(where, "a string", value);
        return {};
      case Shape::kStringList:
        return check_string_list(value, where);
      case Shape::kList:
        if (value.as_array() == nullptr) return wrong(where, "an array", value);
        return {};
      case Shape::kBoolean:
        if (value.as_bool() == nullptr) return wrong(where, "a boolean", value);
        return {};
      case Shape::kNumber:
        if (!number) return wrong(where, "a number", value);
        return {};
      case Shape::kPositive:
        if (!number || !(*number > 0)) return wrong_number(where, "a number above 0", value);
        return {};
      case Shape::kCount:
        if (!number || *number < 0 || *number != std::floor(*number)) {
          return wrong_number(where, "a whole number from 0 up", value);
        }
        return {};
      case Shape::kType:
        return check_type(value, where);
      case Shape::kReference:
        return check_reference(value, where);
      default:
        if (value.as_object() == nullptr) return wrong(where, "an object", value);
        return {};
    }
  }

  static Result<void> check_string_list(const Json& value, const std::string& where) {
    const JsonArray* items = value.as_array();
    if (items == nullptr) return wrong(where, "an array of strings", value);
    std::vector<std::string_view> seen;
    for (const Json& item : *items) {
      if (item.as_string() == nullptr) return wrong(where, "an array of strings", item);
      seen.push_back(*item.as_string());
    }
    std::sort(seen.begin(), seen.end());
    const auto repeat = std::adjacent_find(seen.begin(), seen.end());
    if (repeat == seen.end()) return {};
    return invalid(where + ": wanted each name once, found " + quote(*repeat) + " again");
  }

  static Result<void> check_type(const Json& value, const std::string& where) {
    const auto known = [](const Json& item) {
      return item.as_string() != nullptr &&
             std::find(kTypeNames.begin(), kTypeNames.end(), *item.as_string()) != kTypeNames.end();
    };
    if (value.as_array() == nullptr) {
      if (!known(value)) return wrong(where, "the name of a JSON type", value);
      return {};
    }
    if (value.as_array()->empty()) return wrong(where, "at least one JSON type", value);
    for (const Json& item : *value.as_array()) {
      if (!known(item)) return wrong(where, "names of JSON types", item);
    }
    return check_string_list(value, where);
  }

  Result<void> check_reference(const Json& value, const std::string& where) {
    const std::string* reference = value.as_string();
    if (reference == nullptr) return wrong(where, "a string", value);
    const bool local = *reference == "#" || reference->starts_with("#/");
    if (!local || resolve_pointer(root_, std::string_view(*reference).substr(1)) == nullptr) {
      return wrong(where, "a reference to a part of this schema", value);
    }
    return {};
  }

  const Json& root_;
  bool item_lists_ = false;
};

// ---------------------------------------------------------------- strict schemas

const Json* find_set(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

class StrictForm {
 public:
  Result<Json> any(const Json& schema, const std::string& where) {
    const Json* type = schema.find("type");
    if (type != nullptr && type->as_array() != nullptr) return scalar_list(schema, *type, where);
    if (type != nullptr) return typed(schema, *type, where);
    if (schema.find("anyOf") != nullptr) return any_of(schema, where);
    const Json* reference = schema.find("$ref");
    if (reference == nullptr) {
      return invalid(where + ": wanted one of `type`, `anyOf` and `$ref`, found none");
    }
    if (reference->as_string() == nullptr) return wrong(where + ".$ref", "a string", *reference);
    return Json(JsonObject{{"$ref", *reference}});
  }

  Result<Json> object(const Json& schema, const std::string& where, bool top) {
    JsonObject properties;
    JsonArray names;
    FATHOM_ASSIGN_OR_RETURN(properties, map(schema, "properties", where));
    for (const JsonMember& member : properties) names.emplace_back(member.key);
    if (properties.empty() && !top) {
      return invalid(where + ".properties: wanted at least one property, found none");
    }
    if (const Json* open = find_set(schema, "additionalProperties")) {
      if (open->as_bool() == nullptr || *open->as_bool()) {
        return wrong(where + ".additionalProperties", "false", *open);
      }
    }
    FATHOM_RETURN_IF_ERROR(check_required(schema, properties, where));

    JsonObject out = {{"type", Json(std::string("object"))},
                      {"properties", Json(std::move(properties))},
                      {"additionalProperties", Json(false)},
                      {"required", Json(std::move(names))}};
    FATHOM_RETURN_IF_ERROR(keep_strings({"description"}, schema, where, &out));
    if (find_set(schema, "$def") != nullptr) {
      FATHOM_ASSIGN_OR_RETURN(JsonObject definitions, map(schema, "$def", where));
      out.push_back({"$def", Json(std::move(definitions))});
    }
    return Json(std::move(out));
  }

 private:
  Result<Json> typed(const Json& schema, const Json& type, const std::string& where) {
    const std::string* name = type.as_string();
    if (name == nullptr) return wrong(where + ".type", "the name of a JSON type", type);
    if (*name == "object") return object(schema, where, false);
    JsonObject out = {{"type", type}};
    if (*name == "array") {
      const Json* items = schema.find("items");
      if (items == nullptr) return invalid(where + ".items: wanted a schema, found nothing");
      FATHOM_ASSIGN_OR_RETURN(Json inner, any(*items, where + ".items"));
      out.push_back({"items", std::move(inner)});
    }
    FATHOM_RETURN_IF_ERROR(keep_strings({"description"}, schema, where, &out));
    if (*name == "string") {
      FATHOM_RETURN_IF_ERROR(keep_string_keywords(schema, where, &out));
    } else if (*name == "number" || *name == "integer") {
      FATHOM_RETURN_IF_ERROR(keep_numbers(schema, *name == "integer", where, &out));
    } else if (*name != "array" && *name != "boolean" && *name != "null") {
      return wrong(where + ".type", "the name of a JSON type", type);
    }
    return Json(std::move(out));
  }

  Result<Json> scalar_list(const Json& schema, const Json& type, const std::string& where) {
    for (const Json& item : *type.as_array()) {
      const std::string* name = item.as_string();
      const bool scalar =
          name != nullptr && *name != "object" && *name != "array" &&
          std::find(kTypeNames.begin(), kTypeNames.end(), *name) != kTypeNames.end();
      if (!scalar) return wrong(where + ".type", "names of scalar JSON types", item);
    }
    JsonObject out = {{"type", type}};
    FATHOM_RETURN_IF_ERROR(keep_strings({"description"}, schema, where, &out));
    return Json(std::move(out));
  }

  Result<Json> any_of(const Json& schema, const std::string& where) {
    const Json& branches = *schema.find("anyOf");
    if (branches.as_array() == nullptr) return wrong(where + ".anyOf", "an array", branches);
    JsonArray kept;
    for (size_t i = 0; i < branches.as_array()->size(); ++i) {
      const Json& branch = (*branches.as_array())[i];
      const std::string place = where + ".anyOf[" + std::to_string(i) + "]";
      const Json* type = branch.find("type");
      if (type == nullptr) return invalid(place + ".type: wanted a JSON type, found none");
      FATHOM_ASSIGN_OR_RETURN(Json form, typed(branch, *type, place));
      kept.push_back(std::move(form));
    }
    JsonObject out = {{"anyOf", Json(std::move(kept))}};
    FATHOM_RETURN_IF_ERROR(keep_strings({"description"}, schema, where, &out));
    return Json(std::move(out));
  }

  Result<JsonObject> map(const Json& schema, const char* key, const std::string& where) {
    JsonObject out;
    const Json* value = find_set(schema, key);
    if (value == nullptr) return out;
    if (value->as_object() == nullptr) return wrong(where + "." + key, "an object", *value);
    for (const JsonMember& member : *value->as_object()) {
      FATHOM_ASSIGN_OR_RETURN(Json inner, any(member.value, where + "." + key + "." + member.key));
      out.push_back({member.key, std::move(inner)});
    }
    return out;
  }

  static Result<void> check_required(const Json& schema, const JsonObject& properties,
                                     const std::string& where) {
    const Json* required = find_set(schema, "required");
    if (required == nullptr) return {};
    const std::string field = where + ".required";
    if (required->as_array() == nullptr) return wrong(field, "an array of strings", *required);
    std::vector<std::string_view> wanted;
    for (const JsonMember& member : properties) wanted.push_back(member.key);
    std::vector<std::string_view> found;
    for (const Json& item : *required->as_array()) {
      if (item.as_string() == nullptr) return wrong(field, "an array of strings", item);
      found.push_back(*item.as_string());
    }
    std::sort(wanted.begin(), wanted.end());
    std::sort(found.begin(), found.end());
    if (wanted == found) return {};
    return invalid(field + ": wanted every property once (" + std::to_string(wanted.size()) +
                   "), found another list (" + std::to_string(found.size()) + ")");
  }

  static Result<void> keep_strings(std::span<const char* const> keys, const Json& schema,
                                   const std::string& where, JsonObject* out) {
    for (const char* key : keys) {
      const Json* value = find_set(schema, key);
      if (value == nullptr) continue;
      if (value->as_string() == nullptr) return wrong(where + "." + key, "a string", *value);
      out->push_back({key, *value});
    }
    return {};
  }

  static Result<void> keep_strings(std::initializer_list<const char*> keys, const Json& schema,
                                   const std::string& where, JsonObject* out) {
    return keep_strings(std::span(keys.begin(), keys.size()), schema, where, out);
  }

  static Result<void> keep_string_keywords(const Json& schema, const std::string& where,
                                           JsonObject* out) {
    constexpr std::array<std::string_view, 5> kFormats = {"email", "hostname", "ipv4", "ipv6",
                                                          "uuid"};
    FATHOM_RETURN_IF_ERROR(keep_strings({"pattern", "format"}, schema, where, out));
    const Json* format = find_set(schema, "format");
    if (format != nullptr &&
        std::find(kFormats.begin(), kFormats.end(), *format->as_string()) == kFormats.end()) {
      return wrong(where + ".format", "email, hostname, ipv4, ipv6 or uuid", *format);
    }
    const Json* choices = find_set(schema, "enum");
    if (choices == nullptr) return {};
    if (choices->as_array() == nullptr) return wrong(where + ".enum", "an array", *choices);
    for (const Json& item : *choices->as_array()) {
      if (item.as_string() == nullptr) return wrong(where + ".enum", "strings", item);
    }
    out->push_back({"enum", *choices});
    return {};
  }

  static Result<void> keep_numbers(const Json& schema, bool integer, const std::string& where,
                                   JsonObject* out) {
    for (const char* key : {"const", "default", "minimum", "maximum", "exclusiveMinimum",
                            "exclusiveMaximum", "multipleOf"}) {
      const Json* value = find_set(schema, key);
      if (value == nullptr) continue;
      const bool fits = integer ? value->as_int64() != nullptr : value->is_number();
      if (!fits) {
        return wrong(where + "." + key, integer ? "a 64-bit integer" : "a number", *value);
      }
      out->push_back({key, *value});
    }
    return {};
  }
};

}  // namespace

std::optional<double> number_of(const Json& value) {
  if (const auto* whole = value.as_int64()) return static_cast<double>(*whole);
  if (const auto* natural = value.as_uint64()) return static_cast<double>(*natural);
  if (const auto* real = value.as_double()) return *real;
  return std::nullopt;
}

const Json* resolve_pointer(const Json& root, std::string_view pointer) {
  const Json* at = &root;
  while (!pointer.empty() && at != nullptr) {
    pointer.remove_prefix(1);
    const size_t end = std::min(pointer.find('/'), pointer.size());
    std::string key;
    for (size_t i = 0; i < end; ++i) {
      const std::string_view rest = pointer.substr(i, end - i);
      unsigned code = 0;
      if (rest.starts_with("~0") || rest.starts_with("~1")) {
        key.push_back(rest[1] == '0' ? '~' : '/');
        i += 1;
      } else if (rest.size() >= 3 && rest[0] == '%' &&
                 std::from_chars(rest.data() + 1, rest.data() + 3, code, 16).ptr ==
                     rest.data() + 3) {
        key.push_back(static_cast<char>(code));
        i += 2;
      } else {
        key.push_back(rest[0]);
      }
    }
    pointer.remove_prefix(end);
    if (const JsonArray* items = at->as_array()) {
      size_t index = items->size();
      std::from_chars(key.data(), key.data() + key.size(), index);
      at = index < items->size() ? &(*items)[index] : nullptr;
    } else {
      at = at->find(key);
    }
  }
  return at;
}

Result<void> check_schema(const Json& schema, const std::string& where) {
  return check_schema(schema, where, schema);
}

Result<void> check_schema(const Json& schema, const std::string& where, const Json& root) {
  return SchemaCheck(root).check(schema, where);
}

Result<void> check_parameters_schema(const Json& schema, const std::string& where) {
  FATHOM_RETURN_IF_ERROR(check_schema(schema, where));
  const Json* type = schema.find("type");
  if (type != nullptr && type->as_string() != nullptr && *type->as_string() == "object") return {};
  return wrong(where + ".type", "\"object\"", type != nullptr ? *type : Json());
}

Result<Json> normalise_strict_schema(const Json& parameters, const std::string& where) {
  if (parameters.is_null()) return StrictForm().object(parameters, where, true);
  const Json* type = parameters.find("type");
  const bool object =
      type != nullptr && type->as_string() != nullptr && *type->as_string() == "object";
  if (!object) return wrong(where + ".type", "\"object\"", type != nullptr ? *type : Json());
  return StrictForm().object(parameters, where, true);
}

}  // namespace fathom
