#include "text/grammar_schema.h"

#include <algorithm>
#include <utility>

#include "text/grammar_schema_keywords.h"
#include "text/grammar_schema_reader.h"
#include "text/quote.h"
#include "text/schema_exclusion.h"
#include "text/tool_schema.h"

namespace fathom {
using Expr = GrammarBuilder::Expr;

Result<Expr> SchemaReader::read() {
  const Expr whole = referred("", root_, where_, SchemaPart::kAll);
  FATHOM_RETURN_IF_ERROR(read_pending());
  return whole;
}

Result<std::vector<SchemaReader::Parameter>> SchemaReader::read_parameters() {
  FATHOM_RETURN_IF_ERROR(check_parameters_schema(root_, where_));
  FATHOM_ASSIGN_OR_RETURN(const Keywords found, keywords(root_, where_));
  if (found.whole != nullptr) {
    return refused(where_ + "." + found.whole->key, "keywords of an object alone", "another");
  }
  const Json* listed = root_.find("properties");
  std::vector<Parameter> parameters;
  for (size_t i = 0; listed != nullptr && i < listed->as_object()->size(); ++i) {
    const JsonMember& member = (*listed->as_object())[i];
    const std::string path = where_ + ".properties." + member.key;
    Parameter parameter = {.name = member.key};
    FATHOM_ASSIGN_OR_RETURN(parameter.text, value(member.value, path, SchemaPart::kText));
    FATHOM_ASSIGN_OR_RETURN(parameter.other, value(member.value, path, SchemaPart::kOther));
    parameters.push_back(std::move(parameter));
  }
  FATHOM_RETURN_IF_ERROR(read_pending());
  return parameters;
}

// Some of what a reference leads to, as what stands under $def, no check of the whole has seen.
Result<void> SchemaReader::read_pending() {
  while (!pending_.empty()) {
    const Pending next = pending_.front();
    pending_.pop_front();
    FATHOM_RETURN_IF_ERROR(check_schema(*next.schema, next.path, root_));
    FATHOM_ASSIGN_OR_RETURN(const Expr body, value(*next.schema, next.path, next.part));
    builder_.define(next.rule, body);
  }
  SchemaExclusion exclusion(root_, closed_);
  for (const Alternatives& found : alternatives_) {
    const JsonArray& list = *found.branches;
    for (size_t j = 1; j < list.size(); ++j) {
      for (size_t i = 0; i < j; ++i) {
        if (exclusion.proven(list[i], list[j])) continue;
        return refused(found.path,
                       "branches of which no value fits two, told apart by type, by the values "
                       "they list or by a required property",
                       "[" + std::to_string(i) + "] and [" + std::to_string(j) + "]");
      }
    }
  }
  return {};
}

Expr SchemaReader::referred(const std::string& pointer, const Json& schema, const std::string& path,
                            SchemaPart part) {
  const auto found = rules_.find({pointer, part});
  if (found != rules_.end()) return builder_.call(found->second);
  const GrammarBuilder::RuleId rule = builder_.declare("#" + pointer);
  rules_.emplace(std::pair(pointer, part), rule);
  pending_.push_back({.rule = rule, .schema = &schema, .path = path, .part = part});
  return builder_.call(rule);
}

Result<SchemaReader::Keywords> SchemaReader::keywords(const Json& schema, const std::string& path) {
  Keywords found;
  for (const JsonMember& member : *schema.as_object()) {
    const Subject subject = subject_of(member.key);
    if (subject == Subject::kUnknown) {
      return refused(path + "." + member.key, "a keyword that can be enforced", "one that cannot");
    }
    if (subject == Subject::kWhole) {
      if (found.whole != nullptr) {
        return refused(path + "." + member.key, "no " + found.whole->key + " beside it", "one");
      }
      found.whole = &member;
    }
    if (subject > Subject::kType && subject < Subject::kWhole) found.typed.push_back(member.key);
  }
  return found;
}

Result<Expr> SchemaReader::value(const Json& schema, const std::string& path, SchemaPart part) {
  if (const bool* all = schema.as_bool()) return *all ? anything(part) : builder_.nothing();
  if (builder_.full()) {
    return invalid(path + ": wanted a form of at most " + std::to_string(kGrammarPartsMax) +
                   " parts, found one of more");
  }
  FATHOM_ASSIGN_OR_RETURN(Keywords found, keywords(schema, path));
  const Json* type = schema.find("type");
  if (found.whole == nullptr) return typed_value(schema, found.typed, path, part);
  const std::string& key = found.whole->key;
  const bool listed = key == "enum" || key == "const";
  if (type != nullptr && !listed) found.typed.emplace_back("type");
  if (!found.typed.empty()) {
    return refused(path + "." + found.typed.front(), "no " + key + " beside it", "one");
  }
  if (listed) return listed_values(*found.whole, type, path + "." + key, part);
  if (key == "$ref") return reference(*found.whole->value.as_string(), path + "." + key, part);
  return branches(*found.whole, path + "." + key, part);
}

Expr SchemaReader::anything(SchemaPart part) {
  if (part == SchemaPart::kText) return any_text();
  return part == SchemaPart::kOther ? json_.any_but_string(kJsonDepth)
                                    : json_.any_value(kJsonDepth);
}

Result<Expr> SchemaReader::listed_values(const JsonMember& member, const Json* type,
                                         const std::string& path, SchemaPart part) {
  FATHOM_RETURN_IF_ERROR(check_exact(member.value, path));
  const JsonArray one = {member.value};
  std::vector<Expr> parts;
  std::vector<std::string> scalars;
  for (const Json& item : member.key == "const" ? one : *member.value.as_array()) {
    const std::string* text = item.as_string();
    if (type != nullptr && !fits_type(item, *type)) continue;
    if (part != SchemaPart::kAll && (text != nullptr) != (part == SchemaPart::kText)) continue;
    if (part == SchemaPart::kText) {
      if (text->find(kTextEnd) != std::string::npos) {
        return refused(path, "no text that holds " + std::string(kTextEnd), "one");
      }
      scalars.push_back(*text);
    } else if (item.as_array() == nullptr && item.as_object() == nullptr) {
      scalars.push_back(json_.spelled(json_text(item)));
    } else {
      parts.push_back(json_.literal(item));
    }
  }
  parts.push_back(builder_.one_of(std::move(scalars)));
  return builder_.choice(std::move(parts));
}

Result<Expr> SchemaReader::branches(const JsonMember& member, const std::string& path,
                                    SchemaPart part) {
  const JsonArray& list = *member.value.as_array();
  if (member.key == "allOf" && list.size() > 1) {
    return refused(path, "allOf of one schema", std::to_string(list.size()));
  }
  if (member.key == "oneOf" && part != SchemaPart::kText) alternatives_.push_back({&list, path});
  std::vector<Expr> parts;
  for (size_t i = 0; i < list.size(); ++i) {
    FATHOM_ASSIGN_OR_RETURN(const Expr branch,
                            value(list[i], path + "[" + std::to_string(i) + "]", part));
    parts.push_back(branch);
  }
  return builder_.choice(std::move(parts));
}

// Steps that lead from schema to schema, so that what is reached was checked as one.
Result<Expr> SchemaReader::reference(const std::string& reference, const std::string& path,
                                     SchemaPart part) {
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
    const bool named = keyword == "$defs" || keyword == "$def" || keyword == "definitions" ||
                       keyword == "properties";
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
  return referred(std::string(pointer), *at, at_path, part);
}

Result<Expr> SchemaReader::typed_value(const Json& schema, const std::vector<std::string>& typed,
                                       const std::string& path, SchemaPart part) {
  std::vector<std::string> types;
  if (const Json* type = schema.find("type")) {
    if (type->as_string() != nullptr) types.push_back(*type->as_string());
    for (size_t i = 0; type->as_array() != nullptr && i < type->as_array()->size(); ++i) {
      types.push_back(*(*type->as_array())[i].as_string());
    }
  } else if (typed.empty()) {
    return anything(part);
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
    if (part != SchemaPart::kAll && (type == "string") != (part == SchemaPart::kText)) continue;
    FATHOM_ASSIGN_OR_RETURN(const Expr one, value_of_type(type, schema, path, part));
    parts.push_back(one);
  }
  return builder_.choice(std::move(parts));
}

Result<Expr> SchemaReader::value_of_type(const std::string& type, const Json& schema,
                                         const std::string& path, SchemaPart part) {
  if (type == "object") return object(schema, path);
  if (type == "array") return array(schema, path);
  if (type == "string") return string(schema, path, part);
  if (type == "integer") return integer(schema, path);
  if (type == "number") return number(schema, path);
  if (type == "null") return builder_.bytes("null");
  return builder_.choice({builder_.bytes("true"), builder_.bytes("false")});
}

Result<Grammar> schema_grammar(const Json& schema, const std::string& where,
                               const GrammarFrame& frame) {
  GrammarBuilder builder;
  JsonParts json(builder);
  FATHOM_ASSIGN_OR_RETURN(const Expr whole,
                          SchemaReader(builder, json, schema, where, false).read());
  return builder.finish(whole, frame, where);
}

Result<Grammar> object_grammar(const GrammarFrame& frame) {
  GrammarBuilder builder;
  JsonParts json(builder);
  return builder.finish(json.any_object(kJsonDepth), frame, "json_object");
}

}  // namespace fathom
