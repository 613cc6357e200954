// Schemas: strict normal forms are what the published server library 0.2.0 prints for the same
// input; refusals are its refusals.

#include "text/tool_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fathom {
namespace {

using testing::HasSubstr;

std::string strict(const std::string& text) {
  const auto form = normalise_strict_schema(*parse_json(text), "p");
  return form ? json_text(*form) : "refused " + form.error().message;
}

// The normal form of a property `a` of this schema.
std::string strict_property(const std::string& text) {
  const std::string form = strict(R"({"type":"object","properties":{"a":)" + text + "}}");
  const std::string head = R"({"type": "object", "properties": {"a": )";
  const std::string tail = R"(}, "additionalProperties": false, "required": ["a"]})";
  if (!form.starts_with(head) || !form.ends_with(tail)) return form;
  return form.substr(head.size(), form.size() - head.size() - tail.size());
}

TEST(StrictSchema, KeepsTheKeywordsOfEachTypeInTheirOrder) {
  EXPECT_EQ(
      strict("null"),
      R"({"type": "object", "properties": {}, "additionalProperties": false, "required": []})");
  EXPECT_EQ(strict(R"({"$schema":"u","required":["b","a"],"type":"object","title":"t",
      "properties":{"a":{"minLength":1,"type":"string"},"b":{"type":"null"}},"description":"d",
      "$def":{"x":{"type":"boolean","default":true}},"$defs":{"y":5}})"),
            R"({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "null"}}, )"
            R"("additionalProperties": false, "required": ["a", "b"], "description": "d", )"
            R"("$def": {"x": {"type": "boolean"}}})");
  EXPECT_EQ(strict_property(R"({"enum":["x","y"],"format":"email","pattern":"^x","const":"x",
      "description":"d","default":"x","maxLength":2,"type":"string"})"),
            R"({"type": "string", "description": "d", "pattern": "^x", "format": "email", )"
            R"("enum": ["x", "y"]})");
  EXPECT_EQ(strict_property(R"({"multipleOf":2,"exclusiveMaximum":9,"exclusiveMinimum":0,
      "maximum":8,"minimum":1,"const":3,"enum":[3],"default":5,"description":"d",
      "type":"integer"})"),
            R"({"type": "integer", "description": "d", "const": 3, "default": 5, "minimum": 1, )"
            R"("maximum": 8, "exclusiveMinimum": 0, "exclusiveMaximum": 9, "multipleOf": 2})");
  EXPECT_EQ(strict_property(R"({"type":"number","minimum":-0.0,"maximum":null})"),
            R"({"type": "number", "minimum": -0.0})");
  EXPECT_EQ(
      strict_property(R"({"type":"array","minItems":1,"description":"d",
      "items":{"type":"object","properties":{"z":{"type":"string"}}}})"),
      R"({"type": "array", "items": {"type": "object", "properties": {"z": {"type": )"
      R"("string"}}, "additionalProperties": false, "required": ["z"]}, "description": "d"})");
  EXPECT_EQ(strict_property(R"({"type":["string","null"],"enum":["a"],"description":"d"})"),
            R"({"type": ["string", "null"], "description": "d"})");
  EXPECT_EQ(strict_property(R"({"anyOf":[{"type":"string","minLength":1}],"$ref":"#/x"})"),
            R"({"anyOf": [{"type": "string"}]})");
  EXPECT_EQ(strict_property(R"({"$ref":"#/$def/x","description":"d"})"), R"({"$ref": "#/$def/x"})");
}

TEST(StrictSchema, RefusesWhatCannotBeStrict) {
  for (const char* text :
       {"{}", "[]", "true", R"({"type":"string"})", R"({"type":["object"]})",
        R"({"properties":{"a":{"type":"string"}}})", R"({"type":"object","properties":[]})",
        R"({"type":"object","required":["a"]})",
        R"({"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":true})",
        R"({"type":"object","properties":{"a":{"type":"null"}},"required":[]})",
        R"({"type":"object","properties":{"a":{"type":"null"}},"$def":5})"}) {
    EXPECT_THAT(strict(text), HasSubstr("refused p")) << text;
  }
  for (const char* text :
       {"{}", "true", R"({"oneOf":[]})", R"({"enum":["a"]})", R"({"type":"foo"})",
        R"({"type":null})", R"({"type":"object"})", R"({"type":["object","null"]})",
        R"({"type":"array"})", R"({"type":"array","items":true})",
        R"({"type":"string","format":"date"})", R"({"type":"string","enum":[1]})",
        R"({"type":"string","description":5})", R"({"type":"integer","minimum":1.0})",
        R"({"type":"number","const":"x"})", R"({"anyOf":{}})", R"({"$ref":5})"}) {
    EXPECT_THAT(strict_property(text), HasSubstr("refused p.properties.a")) << text;
  }
}

TEST(Schema, ChecksTheTypesOfKeywordsEverywhere) {
  const auto check = [](const std::string& text) {
    const auto result = check_parameters_schema(*parse_json(text), "p");
    return result ? std::string("fine") : result.error().message;
  };
  EXPECT_EQ(check(R"({"type":"object","properties":{"a":{"$ref":"#/$defs/x~1y"},"b":true},
      "$defs":{"x/y":{"type":["string","null"],"minLength":2.0}},"additionalProperties":false,
      "required":["a"],"default":{"$ref":"#/nowhere"},"foo":5,"dependencies":{"a":["b"]}})"),
            "fine");
  EXPECT_EQ(check(R"({"$schema":"http://json-schema.org/draft-07/schema#","type":"object",
      "items":[{}]})"),
            "fine");
  const std::pair<const char*, const char*> refused[] = {
      {"[]", "p: "},
      {"true", "p.type: "},
      {"{}", "p.type: "},
      {R"({"type":["object","null"]})", "p.type: "},
      {R"({"type":"object","properties":{"a":3}})", "p.properties.a: "},
      {R"({"type":"object","properties":3})", "p.properties: "},
      {R"({"type":"object","items":[{}]})", "p.items: "},
      {R"({"type":"object","required":"a"})", "p.required: "},
      {R"({"type":"object","required":["a","a"]})", "p.required: "},
      {R"({"type":"object","properties":{"a":{"type":"foo"}}})", "p.properties.a.type: "},
      {R"({"type":"object","properties":{"a":{"type":[]}}})", "p.properties.a.type: "},
      {R"({"type":"object","properties":{"a":{"minLength":-1}}})", "p.properties.a.minLength: "},
      {R"({"type":"object","properties":{"a":{"multipleOf":0}}})", "p.properties.a.multipleOf: "},
      {R"({"type":"object","properties":{"a":{"enum":"x"}}})", "p.properties.a.enum: "},
      {R"({"type":"object","properties":{"a":{"$ref":"#/nowhere"}}})", "p.properties.a.$ref: "},
      {R"({"type":"object","properties":{"a":{"$ref":"http://x/y"}}})", "p.properties.a.$ref: "},
      {R"({"type":"object","anyOf":[]})", "p.anyOf: "},
      {R"({"type":"object","allOf":[{"not":5}]})", "p.allOf[0].not: "},
      {R"({"type":"object","uniqueItems":"x"})", "p.uniqueItems: "},
  };
  for (const auto& [text, where] : refused) {
    EXPECT_THAT(check(text), testing::StartsWith(where)) << text;
  }
}

}  // namespace
}  // namespace fathom
