#pragma once

// For the tests of grammars of schemas: random schemas of every enforced keyword, a validator that
// knows nothing of grammars, and random walks under masks.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "text/json_text.h"
#include "text/token_matcher.h"
#include "text/utf8.h"

namespace fathom {

inline const char* const kPatterns[] = {"^[a-c]{1,3}$", "x+y", "^\\d{2}-\\w*"};

// Schemas of at most `depth` levels that some value has.
class Schemas {
 public:
  explicit Schemas(uint32_t seed) : random_(seed) {}

  std::string draw(int depth) {
    switch (pick(depth > 0 ? 11 : 6)) {
      case 0:
        return string();
      case 1:
        return number("integer", 1);
      case 2:
        return number("number", 0.25);
      case 3:
        return R"({"type":["boolean","null"],"title":"t"})";
      case 4:
        return R"({"enum":["a b",-2,null,{"k":[true,"é"]},2.5],"description":"d"})";
      case 5:
        return R"({"const":"q\"\\\n"})";
      case 6:
        return R"({"anyOf":[)" + draw(depth - 1) + "," + draw(depth - 1) + "]}";
      case 7:
        return array(depth);
      case 8:
        return R"({"oneOf":[{"type":"object","properties":{"is":{"const":1},"v":)" +
               draw(depth - 1) +
               R"(},"required":["is"]},{"type":"object","properties":{"is":{"const":2}},)"
               R"("required":["is"]},{"type":"null"},)" +
               array(depth) + "]}";
      default:
        return object(depth);
    }
  }

  // Of what the properties of a strict tool may be (tool_schema.h).
  std::string draw_strict() {
    switch (pick(5)) {
      case 0:
        return string();
      case 1:
        return R"({"type":"integer","exclusiveMinimum":)" + std::to_string(pick(300)) +
               R"(,"maximum":)" + std::to_string(400 + pick(900)) + "}";
      case 2:
        return number("number", 0.25);
      case 3:
        return R"({"anyOf":[)" + string() + R"(,{"type":"array","items":)" + string() +
               R"(,"maxItems":3}]})";
      default:
        return coin() ? R"({"type":["string","null","boolean"]})"
                      : R"({"type":"string","enum":["a b","｜","<","\\"]})";
    }
  }

 private:
  uint32_t pick(uint32_t n) { return random_() % n; }
  bool coin() { return pick(2) == 0; }

  std::string string() {
    if (pick(4) == 0)
      return R"({"type":"string","pattern":)" + json_quoted(kPatterns[pick(3)]) + "}";
    const uint32_t low = pick(3);
    std::string schema = R"({"type":"string")";
    if (low > 0) schema += R"(,"minLength":)" + std::to_string(low);
    if (coin()) schema += R"(,"maxLength":)" + std::to_string(low + pick(6));
    return schema + "}";
  }
  std::string number(const std::string& type, double step) {
    std::string schema = R"({"type":")" + type + "\"";
    const double low = (static_cast<double>(pick(400)) - 200) * step;
    if (coin())
      schema += (coin() ? R"(,"minimum":)" : R"(,"exclusiveMinimum":)") + json_double(low);
    const double high = low + 2 + static_cast<double>(pick(300)) * step;
    if (coin())
      schema += (coin() ? R"(,"maximum":)" : R"(,"exclusiveMaximum":)") + json_double(high);
    return schema + "}";
  }
  std::string array(int depth) {
    std::string schema = R"({"type":"array")";
    if (coin()) schema += R"(,"prefixItems":[)" + draw(depth - 1) + "," + draw(depth - 1) + "]";
    schema += R"(,"items":)" + draw(depth - 1);
    const uint32_t low = pick(3);
    if (coin()) schema += R"(,"minItems":)" + std::to_string(low);
    if (coin()) schema += R"(,"maxItems":)" + std::to_string(low + pick(3));
    return schema + "}";
  }
  std::string object(int depth) {
    std::string schema = R"({"type":"object","properties":{)";
    std::string required;
    const uint32_t n = pick(4);
    for (uint32_t i = 0; i < n; ++i) {
      const std::string name = json_quoted(std::string("ab\"é").substr(0, 1 + i) + "k");
      schema += (i == 0 ? "" : ",") + name + ":" + draw(depth - 1);
      if (coin()) required += (required.empty() ? "" : ",") + name;
    }
    schema += R"(},"required":[)" + required + "]";
    if (coin()) schema += R"(,"additionalProperties":)" + (coin() ? "false" : draw(depth - 1));
    return schema + "}";
  }

  std::mt19937 random_;
};

inline double value_of(const Json& value) {
  if (const int64_t* is = value.as_int64()) return static_cast<double>(*is);
  if (const uint64_t* is = value.as_uint64()) return static_cast<double>(*is);
  return *value.as_double();
}

inline bool valid(const Json& schema, const Json& value);

inline bool is_of_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number() && std::floor(value_of(value)) == value_of(value);
  const std::string kind = value.kind_name();
  return kind ==
         (type == "null" ? "null" : (type == "array" || type == "object" ? "an " : "a ") + type);
}

inline bool types_fit(const Json& schema, const Json& value) {
  const Json* type = schema.find("type");
  if (type == nullptr) return true;
  if (type->as_string() != nullptr) return is_of_type(value, *type->as_string());
  return std::ranges::any_of(*type->as_array(),
                             [&](const Json& one) { return is_of_type(value, *one.as_string()); });
}

inline bool bounds_fit(const Json& schema, const Json& value) {
  const auto bound = [&](const char* name, double absent) {
    const Json* found = schema.find(name);
    return found == nullptr ? absent : value_of(*found);
  };
  if (value.is_number()) {
    const double x = value_of(value);
    return x >= bound("minimum", -INFINITY) && x <= bound("maximum", INFINITY) &&
           (schema.find("exclusiveMinimum") == nullptr || x > bound("exclusiveMinimum", 0)) &&
           (schema.find("exclusiveMaximum") == nullptr || x < bound("exclusiveMaximum", 0));
  }
  if (const std::string* text = value.as_string()) {
    const auto n = static_cast<double>(utf8_characters(*text).size());
    const Json* pattern = schema.find("pattern");
    if (pattern != nullptr && !std::regex_search(*text, std::regex(*pattern->as_string()))) {
      return false;
    }
    return n >= bound("minLength", 0) && n <= bound("maxLength", INFINITY);
  }
  if (value.as_array() == nullptr) return true;
  const auto n = static_cast<double>(value.as_array()->size());
  return n >= bound("minItems", 0) && n <= bound("maxItems", INFINITY);
}

inline bool members_fit(const Json& schema, const Json& value) {
  const Json* properties = schema.find("properties");
  for (const JsonMember& member : *value.as_object()) {
    const Json* own = properties == nullptr ? nullptr : properties->find(member.key);
    const Json* others = schema.find("additionalProperties");
    if (own == nullptr && others == nullptr) return false;  // stricter than JSON Schema, as stated
    if (!valid(own != nullptr ? *own : *others, member.value)) return false;
  }
  const Json* required = schema.find("required");
  return required == nullptr || std::ranges::all_of(*required->as_array(), [&](const Json& name) {
           return value.find(*name.as_string()) != nullptr;
         });
}

inline bool items_fit(const Json& schema, const Json& value) {
  const Json* first = schema.find("prefixItems");
  const size_t n_first = first == nullptr ? 0 : first->as_array()->size();
  for (size_t i = 0; i < value.as_array()->size(); ++i) {
    const Json* own = i < n_first ? &(*first->as_array())[i] : schema.find("items");
    if (own != nullptr && !valid(*own, (*value.as_array())[i])) return false;
  }
  return true;
}

inline bool valid(const Json& schema, const Json& value) {
  if (const bool* all = schema.as_bool()) return *all;
  if (const Json* branches = schema.find("anyOf")) {
    return std::ranges::any_of(*branches->as_array(),
                               [&](const Json& branch) { return valid(branch, value); });
  }
  if (const Json* branches = schema.find("oneOf")) {
    return std::ranges::count_if(*branches->as_array(),
                                 [&](const Json& branch) { return valid(branch, value); }) == 1;
  }
  const auto equal = [&](const Json& one) { return json_text(one) == json_text(value); };
  if (const Json* one = schema.find("const")) return equal(*one);
  if (const Json* list = schema.find("enum")) return std::ranges::any_of(*list->as_array(), equal);
  if (!types_fit(schema, value) || !bounds_fit(schema, value)) return false;
  if (value.as_object() != nullptr) return members_fit(schema, value);
  return value.as_array() == nullptr || items_fit(schema, value);
}

// A text of the grammar; what ends things is drawn more and more often, most of all `close`.
inline std::string drawn(TokenMatcher& matcher, const TokenTrie& tokens, std::mt19937& random,
                         std::string_view close = "") {
  GrammarState state = *matcher.start();
  std::string text;
  for (int n = 0; state.can_go_on && n < 4000; ++n) {
    if (state.can_end && random() % 3 == 0) break;
    const TokenMask& mask = **matcher.mask(state);
    std::vector<TokenId> all;
    std::vector<TokenId> ends;
    std::vector<TokenId> closes;
    for (TokenId id = 0; id < tokens.n_tokens(); ++id) {
      if (!mask_has(mask, id)) continue;
      const std::string_view bytes = tokens.bytes(id);
      all.push_back(id);
      const bool ending = bytes.find_first_of("\"}]") != std::string_view::npos;
      if (ending && bytes.find_first_of("{[") == std::string_view::npos) ends.push_back(id);
      if (!bytes.empty() && bytes == close) closes.push_back(id);
    }
    EXPECT_FALSE(all.empty()) << text;
    if (all.empty()) return text;
    const std::vector<TokenId>& enders = closes.empty() ? ends : closes;
    const bool hurry = !enders.empty() && random() % 64 < 4U + static_cast<uint32_t>(n);
    const std::vector<TokenId>& from = hurry ? enders : all;
    const TokenId next = from[random() % from.size()];
    EXPECT_TRUE(*matcher.accept(state, next));
    text += tokens.bytes(next);
  }
  EXPECT_TRUE(state.can_end) << text;
  return text;
}

}  // namespace fathom
