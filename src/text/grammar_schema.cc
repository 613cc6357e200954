#include "text/grammar_schema.h"

#include <algorithm>
#include <utility>

#include "text/grammar_schema_keywords.h"
#include "text/grammar_schema_reader.h"
#include "text/quote.h"
#include "text/tool_schema.h"

namespace fathom {
namespace {

bool fits(const Json& value, const Json& type) {
  if (const std::string* name = type.as_string()) return has_type(value, *name);
  return std::ranges::any_of(*type.as_array(),
                             [&](const Json& name) { return has_type(value, *name.as_string()); });
}

}  // namespace

using Expr = GrammarBuilder::Expr;

Result<Grammar> SchemaReader::read(const GrammarFrame& frame) {
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

Expr SchemaReader::referred(const std::string& pointer, const Json& schema,
                            const std::string& path) {
  const auto found = rules_.find(pointer);
  if (found != rules_.end()) return builder_.call(found->second);
  const GrammarBuilder::RuleId rule = builder_.declare("#" + pointer);
  rules_.emplace(pointer, rule);
  pending_.push_back({.rule = rule, .schema = &schema, .path = path});
  return builder_.call(rule);
}

Result<Expr> SchemaReader::value(const Json& schema, const std::string& path) {
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
      return refused(path + "." + member.key, "a keyword that can be enforced", "one that cannot");
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

Result<Expr> SchemaReader::whole_value(const JsonMember& member, const Json* type,
                                       const std::string& path) {
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

// Steps that lead from schema to schema, so that what is reached was checked as one.
Result<Expr> SchemaReader::reference(const std::string& reference, const std::string& path) {
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
    const bool numbered =
        keyword == "anyOf" || keyword == "oneOf" || keyword == "allOf" || keyword == "prefixItems";
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

Result<Expr> SchemaReader::typed_value(const Json& schema, const std::vector<std::string>& typed,
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

Result<Expr> SchemaReader::value_of_type(const std::string& type, const Json& schema,
                                         const std::string& path) {
  if (type == "object") return object(schema, path);
  if (type == "array") return array(schema, path);
  if (type == "string") return string(schema, path);
  if (type == "integer") return integer(schema, path);
  if (type == "number") return number(schema, path);
  if (type == "null") return builder_.bytes("null");
  return builder_.choice({builder_.bytes("true"), builder_.bytes("false")});
}

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
