// Objects and arrays.
#include "text/grammar_schema_reader.h"

#include <algorithm>
#include <map>

#include "text/grammar_schema_keywords.h"
#include "text/quote.h"

namespace fathom {
namespace {

constexpr size_t kOpenKeyMax = 256;  // bytes of a listed key beside which others may stand

}  // namespace

using Expr = GrammarBuilder::Expr;

Expr SchemaReader::as_rule(const char* name, Expr body) {
  const GrammarBuilder::RuleId rule = builder_.declare(name);
  builder_.define(rule, body);
  return builder_.call(rule);
}

Result<Expr> SchemaReader::object(const Json& schema, const std::string& path) {
  const Json* listed = schema.find("properties");
  std::vector<Property> properties;
  std::vector<std::string> names;
  for (size_t i = 0; listed != nullptr && i < listed->as_object()->size(); ++i) {
    const JsonMember& member = (*listed->as_object())[i];
    FATHOM_ASSIGN_OR_RETURN(
        const Expr inner,
        value(member.value, path + ".properties." + member.key, SchemaPart::kAll));
    names.push_back(member.key);
    properties.push_back(
        {.member = as_rule("member", builder_.sequence({json_.key(member.key), inner}))});
  }
  FATHOM_RETURN_IF_ERROR(mark_required(schema, names, properties, path + ".required"));
  FATHOM_ASSIGN_OR_RETURN(const std::optional<Expr> others, other_members(schema, names, path));
  return json_.braces(members(properties, others));
}

Result<void> SchemaReader::mark_required(const Json& schema, const std::vector<std::string>& names,
                                         std::vector<Property>& properties,
                                         const std::string& path) const {
  const Json* required = schema.find("required");
  if (closed_ && required == nullptr) {
    for (Property& property : properties) property.required = true;
  }
  std::map<std::string_view, size_t> place_of;
  for (size_t i = 0; i < names.size(); ++i) place_of.emplace(names[i], i);
  for (size_t i = 0; required != nullptr && i < required->as_array()->size(); ++i) {
    const std::string& name = *(*required->as_array())[i].as_string();
    const auto found = place_of.find(name);
    if (found == place_of.end()) {
      return refused(path + "[" + std::to_string(i) + "]", "a name of properties", quote(name));
    }
    properties[found->second].required = true;
  }
  return {};
}

Result<std::optional<Expr>> SchemaReader::other_members(const Json& schema,
                                                        const std::vector<std::string>& names,
                                                        const std::string& path) {
  const std::string place = path + ".additionalProperties";
  const Json* others = schema.find("additionalProperties");
  if (others == nullptr && (closed_ || schema.find("properties") != nullptr)) {
    return std::optional<Expr>();
  }
  const Json all(true);
  FATHOM_ASSIGN_OR_RETURN(const Expr inner,
                          value(others == nullptr ? all : *others, place, SchemaPart::kAll));
  if (others != nullptr && others->as_bool() != nullptr && !*others->as_bool()) {
    return std::optional<Expr>();
  }
  for (const std::string& name : names) {
    if (name.size() <= kOpenKeyMax) continue;
    return refused(place, "keys of at most " + std::to_string(kOpenKeyMax) + " bytes beside it",
                   std::to_string(name.size()));
  }
  return std::optional(as_rule("other member", builder_.sequence({json_.other_key(names), inner})));
}

// From the back: what follows a member, and what may be the first one.
Expr SchemaReader::members(const std::vector<Property>& properties,
                           const std::optional<Expr>& others) {
  Expr rest = builder_.empty();
  Expr first = builder_.empty();
  if (others) {
    rest = as_rule("members", builder_.repeat(builder_.sequence({json_.comma(), *others}), 0, -1));
    first = builder_.optional(builder_.sequence({*others, rest}));
  }
  for (auto it = properties.rbegin(); it != properties.rend(); ++it) {
    const Expr begun = builder_.sequence({it->member, rest});
    first = as_rule("members", it->required ? begun : builder_.choice({begun, first}));
    const Expr step = builder_.sequence({json_.comma(), it->member});
    rest = as_rule("members",
                   builder_.sequence({it->required ? step : builder_.optional(step), rest}));
  }
  return first;
}

Result<Expr> SchemaReader::array(const Json& schema, const std::string& path) {
  const Json* unique = schema.find("uniqueItems");
  if (unique != nullptr && *unique->as_bool()) {
    return refused(path + ".uniqueItems", "false, since it cannot be enforced", "true");
  }
  FATHOM_ASSIGN_OR_RETURN(const int64_t low, count(schema, "minItems", 0, path));
  FATHOM_ASSIGN_OR_RETURN(const int64_t high, count(schema, "maxItems", -1, path));
  std::vector<Expr> items;
  if (const Json* first = schema.find("prefixItems")) {
    for (size_t i = 0; i < first->as_array()->size(); ++i) {
      const std::string place = path + ".prefixItems[" + std::to_string(i) + "]";
      FATHOM_ASSIGN_OR_RETURN(const Expr item,
                              value((*first->as_array())[i], place, SchemaPart::kAll));
      items.push_back(as_rule("item", item));
    }
  }
  const Json all(true);
  const Json* others = schema.find("items");
  if (others != nullptr && others->as_array() != nullptr) {
    return refused(path + ".items", "one schema (a tuple stands in prefixItems)", "an array");
  }
  FATHOM_ASSIGN_OR_RETURN(const Expr other, value(others == nullptr ? all : *others,
                                                  path + ".items", SchemaPart::kAll));
  return json_.brackets(elements(items, as_rule("item", other), low, high));
}

// The n-th element follows those before it; after it the array may end where there are enough.
Expr SchemaReader::elements(const std::vector<Expr>& items, Expr other, int64_t low, int64_t high) {
  if (high >= 0 && low > high) return builder_.nothing();
  if (high == 0) return builder_.empty();
  const auto n = static_cast<int64_t>(items.size());
  const Expr more = builder_.sequence({json_.comma(), other});
  const int64_t from = std::max<int64_t>(n, 1);
  const auto left = [&](int64_t k) { return std::max<int64_t>(0, k - from); };
  Expr rest = builder_.repeat(more, left(low), high < 0 ? -1 : left(high));
  for (int64_t i = n - 1; i > 0; --i) {
    const Expr step = builder_.sequence({json_.comma(), items[static_cast<size_t>(i)], rest});
    if (high >= 0 && i >= high) {
      rest = builder_.empty();
    } else {
      rest = as_rule("items", i < low ? step : builder_.optional(step));
    }
  }
  const Expr whole = builder_.sequence({n > 0 ? items[0] : other, rest});
  return low > 0 ? whole : builder_.optional(whole);
}

}  // namespace fathom
