#include "text/schema_exclusion.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar_schema_keywords.h"
#include "text/tool_schema.h"

namespace fathom {
namespace {

constexpr size_t kStepsMax = size_t{1} << 18;
constexpr int kDepthMax = 64;

using Types = uint32_t;  // one bit a type; integers and other numbers are two
constexpr Types kObjects = 1;
constexpr Types kIntegers = 32;
constexpr std::array<std::pair<std::string_view, Types>, 7> kTypes = {{{"object", kObjects},
                                                                       {"array", 2},
                                                                       {"string", 4},
                                                                       {"boolean", 8},
                                                                       {"null", 16},
                                                                       {"integer", kIntegers},
                                                                       {"number", kIntegers | 64}}};

bool equal(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return *number_of(a) == *number_of(b);
  if (const JsonArray* list = a.as_array()) {
    return b.as_array() != nullptr && std::ranges::equal(*list, *b.as_array(), equal);
  }
  if (const JsonObject* members = a.as_object()) {
    if (b.as_object() == nullptr || members->size() != b.as_object()->size()) return false;
    return std::ranges::all_of(*members, [&](const JsonMember& member) {
      const Json* other = b.find(member.key);
      return other != nullptr && equal(member.value, *other);
    });
  }
  return json_text(a) == json_text(b);
}

// The values that a schema lists, without those that its own type leaves out.
std::optional<std::vector<Json>> values_of(const Json& schema) {
  std::optional<std::vector<Json>> values;
  if (const Json* one = schema.find("const")) values = {*one};
  if (const Json* list = schema.find("enum")) values = *list->as_array();
  const Json* type = schema.find("type");
  if (values && type != nullptr) {
    std::erase_if(*values, [&](const Json& value) { return !fits_type(value, *type); });
  }
  return values;
}

Types type_of(const Json& value) {
  const auto found =
      std::ranges::find_if(kTypes, [&](const auto& type) { return has_type(value, type.first); });
  return found->first == "number" ? found->second & ~kIntegers : found->second;
}

Types types_of(const Json& schema) {
  Types types = 0;
  if (const auto values = values_of(schema)) {
    for (const Json& value : *values) types |= type_of(value);
    return types;
  }
  const Json* type = schema.find("type");
  for (const auto& [name, bits] : kTypes) {
    const auto is_name = [&name = name](const Json& listed) { return *listed.as_string() == name; };
    const bool named = type == nullptr || (type->as_string() != nullptr
                                               ? is_name(*type)
                                               : std::ranges::any_of(*type->as_array(), is_name));
    if (named) types |= bits;
  }
  return types;
}

bool is_schema(const Json& value) {
  return value.as_bool() != nullptr || value.as_object() != nullptr;
}
bool fits_nothing(const Json& schema) { return schema.as_bool() != nullptr && !*schema.as_bool(); }

}  // namespace

bool SchemaExclusion::proven(const Json& a, const Json& b) {
  if (depth_ == kDepthMax || ++n_steps_ > kStepsMax) return false;
  ++depth_;
  const bool found = proven_here(a, b);
  --depth_;
  return found;
}

bool SchemaExclusion::proven_here(const Json& a, const Json& b) {
  for (const bool swapped : {false, true}) {
    const Json& one = swapped ? b : a;
    const Json& other = swapped ? a : b;
    if (const bool* all = one.as_bool()) return !*all || fits_nothing(other);
    if (const Json* reference = one.find("$ref")) {
      const auto pointer = std::string_view(*reference->as_string()).substr(1);
      const Json* target = resolve_pointer(root_, pointer);
      return target != nullptr && is_schema(*target) && proven(*target, other);
    }
    for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
      const Json* branches = one.find(keyword);
      if (branches == nullptr) continue;
      return std::ranges::all_of(*branches->as_array(),
                                 [&](const Json& branch) { return proven(branch, other); });
    }
  }
  const Types shared = types_of(a) & types_of(b);
  if (shared == 0) return true;
  const auto values = values_of(a);
  const auto others = values_of(b);
  if (values && others) {
    n_steps_ += values->size() * others->size();
    if (n_steps_ > kStepsMax) return false;
    return std::ranges::none_of(*values, [&](const Json& value) {
      return std::ranges::any_of(*others, [&](const Json& other) { return equal(value, other); });
    });
  }
  return !values && !others && shared == kObjects && (told_apart(a, b) || told_apart(b, a));
}

// By a property that `a` requires.
bool SchemaExclusion::told_apart(const Json& a, const Json& b) {
  const Json* properties = a.find("properties");
  const Json* required = a.find("required");
  const Json* others = b.find("properties");
  const Json* open = b.find("additionalProperties");
  const bool shut = open == nullptr ? closed_ : fits_nothing(*open);
  for (size_t i = 0; properties != nullptr && i < properties->as_object()->size(); ++i) {
    const JsonMember& member = (*properties->as_object())[i];
    const auto is_name = [&](const Json& name) { return *name.as_string() == member.key; };
    const bool needed =
        required == nullptr ? closed_ : std::ranges::any_of(*required->as_array(), is_name);
    if (!needed) continue;
    const Json* other = others == nullptr ? nullptr : others->find(member.key);
    if (other == nullptr ? shut : proven(member.value, *other)) return true;
  }
  return false;
}

}  // namespace fathom
