#include "text/grammar_schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "text/grammar_format.h"
#include "text/grammar_json.h"
#include "text/grammar_number.h"
#include "text/grammar_regex.h"
#include "text/quote.h"
#include "text/tool_schema.h"

namespace fathom {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr size_t kOpenKeyMax = 256;  // bytes of a listed key beside which others may stand

// What a keyword speaks of.
enum class Subject : uint8_t {
  kAnnotation,
  kType,
  kObject,
  kArray,
  kString,
  kNumber,
  kWhole,  // the value as a whole: no other subject stands beside it
  kUnknown,
};

Subject subject_of(std::string_view keyword) {
  constexpr std::array<std::pair<std::string_view, Subject>, 38> kSubjects = {{
      {"title", Subject::kAnnotation},
      {"description", Subject::kAnnotation},
      {"default", Subject::kAnnotation},
      {"examples", Subject::kAnnotation},
      {"deprecated", Subject::kAnnotation},
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
    if (name == keyword && !name.empty()) return subject;
  }
  return Subject::kUnknown;
}

Error refused(const std::string& path, const std::string& wanted, const std::string& found) {
  return invalid(path + ": wanted " + wanted + ", found " + found);
}

std::optional<double> number_of(const Json& value) {
  if (const int64_t* is = value.as_int64()) return static_cast<double>(*is);
  if (const uint64_t* is = value.as_uint64()) return static_cast<double>(*is);
  if (const double* is = value.as_double()) return *is;
  return std::nullopt;
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

class SchemaReader {
 public:
  SchemaReader(const Json& root, const std::string& where) : root_(root), where_(where) {}

  Result<Grammar> read(const GrammarFrame& frame) {
    FATHOM_RETURN_IF_ERROR(check_schema(root_, where_));
    const Expr whole = referred("", root_, where_);
    while (!pending_.empty()) {
      const Pending next = pending_.front();
      pending_.pop_front();
      FATHOM_ASSIGN_OR_RETURN(const Expr body, value(*next.schema, next.path));
      builder_.define(next.rule, body);
    }
    return builder_.finish(whole, frame, where_);
  }

 private:
  // A schema that a reference leads to is a rule, read after what refers to it.
  struct Pending {
    GrammarBuilder::RuleId rule = {};
    const Json* schema = nullptr;
    std::string path;
  };

  Expr referred(const std::string& pointer, const Json& schema, const std::string& path) {
    const auto found = rules_.find(pointer);
    if (found != rules_.end()) return builder_.call(found->second);
    const GrammarBuilder::RuleId rule = builder_.declare("#" + pointer);
    rules_.emplace(pointer, rule);
    pending_.push_back({.rule = rule, .schema = &schema, .path = path});
    return builder_.call(rule);
  }

  Result<Expr> value(const Json& schema, const std::string& path) {
    if (const bool* all = schema.as_bool()) {
      return *all ? json_.any_value(kJsonDepth) : builder_.nothing();
    }
    if (builder_.full()) {
      return exhausted(path + ": wanted a form of at most " + std::to_string(kGrammarPartsMax) +
                       " parts, found one of more");
    }
    std::vector<std::string> typed;
    const JsonMember* whole = nullptr;
    for (const JsonMember& member : *schema.as_object()) {
      const Subject subject = subject_of(member.key);
      if (subject == Subject::kUnknown) {
        return refused(path + "." + member.key, "a keyword that can be enforced",
                       "one that cannot");
      }
      if (subject == Subject::kWhole) {
        if (whole != nullptr) {
          return refused(path + "." + member.key, "no " + whole->key + " beside it", "one");
        }
        whole = &member;
      }
      if (subject > Subject::kType && subject < Subject::kWhole) typed.push_back(member.key);
    }
    const Json* type = schema.find("type");
    if (whole == nullptr) return typed_value(schema, typed, path);
    const bool listed = whole->key == "enum" || whole->key == "const";
    if (type != nullptr && !listed) typed.emplace_back("type");
    if (!typed.empty()) {
      return refused(path + "." + typed.front(), "no " + whole->key + " beside it", "one");
    }
    return whole_value(*whole, type, path + "." + whole->key);
  }

  Result<Expr> whole_value(const JsonMember& member, const Json* type, const std::string& path) {
    if (member.key == "$ref") return reference(*member.value.as_string(), path);
    const JsonArray* list = member.value.as_array();
    std::vector<Expr> parts;
    if (member.key == "const" || member.key == "enum") {
      const JsonArray one = {member.value};
      std::vector<std::string> scalars;
      for (const Json& item : member.key == "const" ? one : *list) {
        if (type != nullptr && !fits(item, *type)) continue;
        if (item.as_array() == nullptr && item.as_object() == nullptr) {
          scalars.push_back(json_text(item));
        } else {
          parts.push_back(json_.literal(item));
        }
      }
      parts.push_back(builder_.one_of(std::move(scalars)));
      return builder_.choice(std::move(parts));
    }
    if (member.key == "allOf" && list->size() > 1) {
      return refused(path, "allOf of one schema", std::to_string(list->size()));
    }
    for (size_t i = 0; i < list->size(); ++i) {
      FATHOM_ASSIGN_OR_RETURN(const Expr part,
                              value((*list)[i], path + "[" + std::to_string(i) + "]"));
      parts.push_back(part);
    }
    return builder_.choice(std::move(parts));
  }

  static bool fits(const Json& value, const Json& type) {
    if (const std::string* name = type.as_string()) return has_type(value, *name);
    return std::ranges::any_of(
        *type.as_array(), [&](const Json& name) { return has_type(value, *name.as_string()); });
  }

  // Steps that lead from schema to schema, so that what is reached was checked as one.
  Result<Expr> reference(const std::string& reference, const std::string& path) {
    const std::string_view pointer = std::string_view(reference).substr(1);
    const Json* at = &root_;
    std::string at_path = where_;
    std::string_view rest = pointer;
    while (!rest.empty()) {
      const std::string_view step = rest.substr(0, rest.find('/', 1));
      rest.remove_prefix(step.size());
      const std::string_view keyword = step.substr(1);
      at = at->as_object() == nullptr ? nullptr : resolve_pointer(*at, step);
      at_path += "." + std::string(keyword);
      const bool one = keyword == "items" || keyword == "additionalProperties";
      const bool named = keyword == "$defs" || keyword == "definitions" || keyword == "properties";
      const bool numbered = keyword == "anyOf" || keyword == "oneOf" || keyword == "allOf" ||
                            keyword == "prefixItems";
      if (at == nullptr || (!one && !named && !numbered) || (!one && rest.empty())) {
        return refused(path, "a reference to a schema of this document", quote(reference));
      }
      if (one) continue;
      const std::string_view name = rest.substr(0, rest.find('/', 1));
      rest.remove_prefix(name.size());
      at = resolve_pointer(*at, name);
      at_path += (named ? "." : "[") + std::string(name.substr(1)) + (named ? "" : "]");
      if (at == nullptr) return refused(path, "a reference to a schema", quote(reference));
    }
    if (at->as_object() == nullptr && at->as_bool() == nullptr) {
      return refused(path, "a reference to a schema", quote(reference));
    }
    return referred(std::string(pointer), *at, at_path);
  }

  Result<Expr> typed_value(const Json& schema, const std::vector<std::string>& typed,
                           const std::string& path) {
    std::vector<std::string> types;
    if (const Json* type = schema.find("type")) {
      if (type->as_string() != nullptr) types.push_back(*type->as_string());
      for (size_t i = 0; type->as_array() != nullptr && i < type->as_array()->size(); ++i) {
        types.push_back(*(*type->as_array())[i].as_string());
      }
    } else if (typed.empty()) {
      return json_.any_value(kJsonDepth);
    } else {
      const auto speaks_of = [&](Subject subject) {
        return std::ranges::any_of(typed,
                                   [&](const auto& key) { return subject_of(key) == subject; });
      };
      if (speaks_of(Subject::kObject)) types.emplace_back("object");
      if (speaks_of(Subject::kArray)) types.emplace_back("array");
      if (speaks_of(Subject::kString)) types.emplace_back("string");
      if (speaks_of(Subject::kNumber)) types.emplace_back("number");
    }
    std::vector<Expr> parts;
    for (const std::string& type : types) {
      FATHOM_ASSIGN_OR_RETURN(const Expr part, value_of_type(type, schema, path));
      parts.push_back(part);
    }
    return builder_.choice(std::move(parts));
  }

  Result<Expr> value_of_type(const std::string& type, const Json& schema, const std::string& path) {
    if (type == "object") return object(schema, path);
    if (type == "array") return array(schema, path);
    if (type == "string") return string(schema, path);
    if (type == "integer") return integer(schema, path);
    if (type == "number") return number(schema, path);
    if (type == "null") return builder_.bytes("null");
    return builder_.choice({builder_.bytes("true"), builder_.bytes("false")});
  }

  // ---------------------------------------------------------------- strings

  Result<int64_t> count(const Json& schema, const char* keyword, int64_t absent,
                        const std::string& path) {
    const Json* value = schema.find(keyword);
    if (value == nullptr) return absent;
    const double number = *number_of(*value);
    if (number <= static_cast<double>(kGrammarCountMax)) return static_cast<int64_t>(number);
    return refused(path + "." + keyword, "at most " + std::to_string(kGrammarCountMax),
                   json_text(*value));
  }

  Result<Expr> string(const Json& schema, const std::string& path) {
    const Json* pattern = schema.find("pattern");
    const Json* format = schema.find("format");
    FATHOM_ASSIGN_OR_RETURN(const int64_t low, count(schema, "minLength", 0, path));
    FATHOM_ASSIGN_OR_RETURN(const int64_t high, count(schema, "maxLength", -1, path));
    if (pattern == nullptr && format == nullptr) {
      return high >= 0 && low > high ? builder_.nothing() : json_.string(low, high);
    }
    const std::string first = pattern != nullptr ? "pattern" : "format";
    for (const char* other : {"minLength", "maxLength", "format"}) {
      if (other == first || schema.find(other) == nullptr) continue;
      return refused(path + "." + other, "no " + first + " beside it", "one");
    }
    const std::string place = path + "." + first;
    std::string_view expression;
    if (pattern != nullptr) {
      expression = *pattern->as_string();
    } else {
      expression = format_pattern(*format->as_string());
      if (expression.empty()) {
        return refused(place, "a format that can be enforced", quote(*format->as_string()));
      }
    }
    const RegexOptions options = {
        .search = pattern != nullptr,
        .spell = [this](GrammarBuilder&, const CharacterSet& set) { return json_.character(set); }};
    FATHOM_ASSIGN_OR_RETURN(const Expr content, add_regex(builder_, expression, options, place));
    return json_.quoted(content);
  }

  // ---------------------------------------------------------------- numbers

  // A bound rounded inwards; absent where no 64-bit integer passes it.
  static std::optional<int64_t> whole_bound(const Json& value, bool lower, bool exclusive) {
    if (const int64_t* is = value.as_int64()) {
      if (!exclusive) return *is;
      if (lower) return *is == INT64_MAX ? std::nullopt : std::optional(*is + 1);
      return *is == INT64_MIN ? std::nullopt : std::optional(*is - 1);
    }
    const double x = *number_of(value);
    constexpr double kBeyond = 9.2e18;
    if (!(std::abs(x) < kBeyond)) return std::nullopt;
    const double inside = lower ? std::ceil(x) : std::floor(x);
    const int64_t step = exclusive && inside == x ? 1 : 0;
    return static_cast<int64_t>(inside) + (lower ? step : -step);
  }

  Result<Expr> integer(const Json& schema, const std::string& path) {
    std::optional<int64_t> low;
    std::optional<int64_t> high;
    for (const std::string keyword :
         {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const Json* value = schema.find(keyword);
      if (value == nullptr) continue;
      const bool lower = keyword.ends_with("inimum");
      const auto bound = whole_bound(*value, lower, keyword.starts_with("exclusive"));
      if (!bound) return refused(path + "." + keyword, "a 64-bit integer", json_text(*value));
      if (lower) low = std::max(low.value_or(INT64_MIN), *bound);
      if (!lower) high = std::min(high.value_or(INT64_MAX), *bound);
    }
    return add_integers(builder_, low, high);
  }

  static std::optional<DecimalBound> decimal_bound(const Json& value) {
    const double x = *number_of(value);
    char text[400];
    const auto end =
        std::to_chars(text, text + sizeof(text), std::abs(x), std::chars_format::fixed);
    const std::string_view digits(text, static_cast<size_t>(end.ptr - text));
    const std::string_view whole = digits.substr(0, digits.find('.'));
    DecimalBound bound = {.negative = x < 0};
    if (whole.size() < digits.size()) bound.fraction = digits.substr(whole.size() + 1);
    std::from_chars(whole.data(), whole.data() + whole.size(), bound.whole);
    const bool fits = whole.size() <= 9 && bound.fraction.size() <= kDecimalPlaces;
    return fits ? std::optional(bound) : std::nullopt;
  }

  Result<Expr> number(const Json& schema, const std::string& path) {
    std::optional<DecimalBound> bounds[2];
    for (const std::string keyword :
         {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const Json* value = schema.find(keyword);
      if (value == nullptr) continue;
      const std::string place = path + "." + keyword;
      std::optional<DecimalBound>& bound = bounds[keyword.ends_with("inimum") ? 0 : 1];
      if (bound) return refused(place, "no second bound on the same side", "one");
      bound = decimal_bound(*value);
      if (!bound) {
        return refused(place, "a number below 10^9 of at most 6 decimals", json_text(*value));
      }
      bound->exclusive = keyword.starts_with("exclusive");
    }
    if (!bounds[0] && !bounds[1]) return add_numbers(builder_);
    return add_decimals(builder_, bounds[0], bounds[1]);
  }

  // ---------------------------------------------------------------- objects and arrays

  Expr as_rule(const char* name, Expr body) {
    const GrammarBuilder::RuleId rule = builder_.declare(name);
    builder_.define(rule, body);
    return builder_.call(rule);
  }

  struct Property {
    bool required = false;
    Expr member = {};
  };

  Result<Expr> object(const Json& schema, const std::string& path) {
    const Json* listed = schema.find("properties");
    std::vector<Property> properties;
    std::vector<std::string> names;
    for (size_t i = 0; listed != nullptr && i < listed->as_object()->size(); ++i) {
      const JsonMember& member = (*listed->as_object())[i];
      FATHOM_ASSIGN_OR_RETURN(const Expr inner,
                              value(member.value, path + ".properties." + member.key));
      names.push_back(member.key);
      properties.push_back(
          {.member = as_rule("member", builder_.sequence({json_.key(member.key), inner}))});
    }
    FATHOM_RETURN_IF_ERROR(mark_required(schema, names, properties, path + ".required"));
    FATHOM_ASSIGN_OR_RETURN(const std::optional<Expr> others, other_members(schema, names, path));
    return json_.braces(members(properties, others));
  }

  static Result<void> mark_required(const Json& schema, const std::vector<std::string>& names,
                                    std::vector<Property>& properties, const std::string& path) {
    const Json* required = schema.find("required");
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

  Result<std::optional<Expr>> other_members(const Json& schema,
                                            const std::vector<std::string>& names,
                                            const std::string& path) {
    const std::string place = path + ".additionalProperties";
    const Json* others = schema.find("additionalProperties");
    if (others == nullptr && schema.find("properties") != nullptr) return std::optional<Expr>();
    const Json all(true);
    FATHOM_ASSIGN_OR_RETURN(const Expr inner, value(others == nullptr ? all : *others, place));
    if (others != nullptr && others->as_bool() != nullptr && !*others->as_bool()) {
      return std::optional<Expr>();
    }
    for (const std::string& name : names) {
      if (name.size() <= kOpenKeyMax) continue;
      return refused(place, "keys of at most " + std::to_string(kOpenKeyMax) + " bytes beside it",
                     std::to_string(name.size()));
    }
    return std::optional(
        as_rule("other member", builder_.sequence({json_.other_key(names), inner})));
  }

  // From the back: what follows a member, and what may be the first one.
  Expr members(const std::vector<Property>& properties, const std::optional<Expr>& others) {
    Expr rest = builder_.empty();
    Expr first = builder_.empty();
    if (others) {
      rest =
          as_rule("members", builder_.repeat(builder_.sequence({json_.comma(), *others}), 0, -1));
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

  Result<Expr> array(const Json& schema, const std::string& path) {
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
        FATHOM_ASSIGN_OR_RETURN(const Expr item, value((*first->as_array())[i], place));
        items.push_back(as_rule("item", item));
      }
    }
    const Json all(true);
    const Json* others = schema.find("items");
    if (others != nullptr && others->as_array() != nullptr) {
      return refused(path + ".items", "one schema (a tuple stands in prefixItems)", "an array");
    }
    FATHOM_ASSIGN_OR_RETURN(const Expr other,
                            value(others == nullptr ? all : *others, path + ".items"));
    return json_.brackets(elements(items, as_rule("item", other), low, high));
  }

  // The n-th element follows those before it; after it the array may end where there are enough.
  Expr elements(const std::vector<Expr>& items, Expr other, int64_t low, int64_t high) {
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

  const Json& root_;
  const std::string& where_;
  GrammarBuilder builder_;
  JsonParts json_{builder_};
  std::map<std::string, GrammarBuilder::RuleId> rules_;
  std::deque<Pending> pending_;
};

}  // namespace

Result<Grammar> schema_grammar(const Json& schema, const std::string& where,
                               const GrammarFrame& frame) {
  return SchemaReader(schema, where).read(frame);
}

Result<Grammar> object_grammar(const GrammarFrame& frame) {
  GrammarBuilder builder;
  JsonParts json(builder);
  return builder.finish(json.any_object(kJsonDepth), frame, "json_object");
}

}  // namespace fathom
