#include "text/grammar_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/grammar_test.h"

namespace fathom {
namespace {

using testing::StartsWith;

Result<Grammar> compiled(const std::string& schema) {
  const auto json = parse_json(schema);
  EXPECT_TRUE(json) << schema << " " << json.error().message;
  return schema_grammar(*json, "s");
}

struct Lists {
  std::string schema;
  std::vector<std::string> taken;
  std::vector<std::string> refused;
};

const std::vector<Lists> kLists = {
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},)"
     R"("required":["a"]})",
     {R"({"a":1})", R"({"a": -20, "b": "x"})", "{\n  \"a\": 0,\n  \"b\": \"\"\n}",
      R"({"a":1,"b":"\u00e9 \"\\ \ud83d\ude00é"})"},
     {"{}", R"({"b":"x"})", R"({"a":1.5})", R"({"a":01})", R"({"a":1,})", R"({"b":"x","a":1})",
      R"({"a":1,"c":2})", R"({"a":1,"a":1})", R"({"a":1,"b":"\ud83d"})", "{\"a\":1,\"b\":\"\n\"}",
      R"( {"a":1})", R"({"a":1} )", R"({"a":  1})", "{\"a\":1,\"b\":\"\xC3\"}"}},
    {R"({"properties":{"a":{},"b":{},"c":{}},"required":["b"]})",
     {R"({"b":1})", R"({"a":null,"b":[1,{"x":[]}]})", R"({"b":1,"c":{}})",
      R"({"a":1,"b":2,"c":3})"},
     {R"({"a":1})", R"({"a":1,"c":3})", R"({"c":1,"b":2})", R"({"b":1,,"c":2})", "3"}},
    {R"({"type":"object","properties":{"ab":{"const":1},"a":{"const":2}},)"
     R"("additionalProperties":{"type":"boolean"}})",
     {"{}", R"({"ab":1})", R"({"ab":1,"a":2,"abc":true,"":false,"b":true})", R"({"é":true})"},
     {R"({"ab":true})", R"({"x":1})", R"({"a":true})", R"({"x":true,"a":2})",
      R"({"\u0061b":true})"}},
    {R"({"type":"object"})", {"{}", R"({"x":1,"y":{"z":[]}})"}, {"[]", R"({"x"})"}},
    {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
     {"[1]", "[1, 2,3]", "[\n\t1\n]"},
     {"[]", "[1,2,3,4]", "[1,]", "[\"1\"]", "[,1]"}},
    {R"({"type":"array","prefixItems":[{"type":"string"},{"type":"null"}],)"
     R"("items":{"type":"boolean"}})",
     {"[]", "[\"a\"]", "[\"a\",null]", "[\"a\",null,true,false]"},
     {"[null]", "[\"a\",true]", "[\"a\",null,1]"}},
    {R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"items":false,"minItems":1})",
     {"[1]", "[1,2]"},
     {"[]", "[2]", "[1,2,3]"}},
    {R"({"type":"array","prefixItems":[{"const":1},{"const":2},{"const":3}],"maxItems":2})",
     {"[]", "[1]", "[1,2]"},
     {"[1,2,3]"}},
    {R"({"enum":["a",1,2.5,null,true,{"k":[1]},"é\n"]})",
     {"\"a\"", "1", "2.5", "null", "true", R"({"k":[1]})", R"({ "k": [ 1 ] })", "\"é\\n\""},
     {"\"b\"", "2", "false", "\"é\n\""}},
    {R"({"type":["string","null"],"enum":["a",null,3]})", {"\"a\"", "null"}, {"3"}},
    {R"({"const":{"a":"<"}})", {R"({"a":"<"})"}, {R"({"a":">"})", "{}"}},
    {R"({"anyOf":[{"type":"integer","minimum":0},{"type":"string","maxLength":2},)"
     R"({"type":"null"}]})",
     {"0", "12", "\"ab\"", "\"é€\"", R"("\u00e9\n")", R"("\ud83d\ude00x")", "null"},
     {"-1", "\"abc\"", "true", "1.0"}},
    {R"({"oneOf":[{"const":1},{"const":2}]})", {"1", "2"}, {"3"}},
    {R"({"discriminator":{"propertyName":"k"},"oneOf":[{"type":"object","properties":)"
     R"({"k":{"const":"a"}},"required":["k"]},{"type":"object","properties":{"k":{"const":"b"}},)"
     R"("required":["k"]}]})",
     {R"({"k":"a"})", R"({"k":"b"})"},
     {R"({"k":"c"})", "{}"}},
    {R"({"allOf":[{"type":"boolean"}],"description":"d"})", {"true"}, {"1"}},
    {R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},)"
     R"("next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}},)"
     R"("$ref":"#/$defs/node"})",
     {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
     {R"({"v":1})", R"({"v":1,"next":{}})", R"({"v":1,"next":{"v":2,"next":null})"}},
    {R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]", "[[]"}},
    {R"({"type":"string","minLength":2,"maxLength":3})",
     {"\"ab\"", "\"abc\"", "\"€é\"", R"("\\\"")"},
     {"\"a\"", "\"abcd\"", "\"\""}},
    {R"({"type":"string","minLength":2})", {"\"ab\"", "\"abcdefg\""}, {"\"a\""}},
    {R"({"type":"string","pattern":"^[a-z]+-\\d{2}$"})",
     {"\"ab-01\""},
     {"\"ab-1\"", "\"AB-01\"", "\"xab-01 \""}},
    {R"({"type":"string","pattern":"b.d"})",
     {"\"bad\"", "\"a bxd\"", R"("b\"d")", R"("b\\d\n")", "\"abedx\""},
     {"\"bd\"", R"("b\nd")", "\"b\"d\""}},
    {R"({"type":"string","format":"date"})",
     {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\""},
     {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"2024-04-31\""}},
    {R"({"type":"string","format":"date-time"})",
     {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.5+02:00\""},
     {"\"2024-01-01 00:00:00Z\"", "\"2024-01-01T24:00:00Z\""}},
    {R"({"type":"string","format":"uuid"})",
     {"\"123e4567-e89b-12d3-a456-426614174000\""},
     {"\"123e4567e89b12d3a456426614174000\""}},
    {R"({"type":"string","format":"ipv4"})", {"\"127.0.0.1\""}, {"\"256.0.0.1\"", "\"1.2.3\""}},
    {R"({"type":"string","format":"ipv6"})",
     {"\"::1\"", "\"2001:db8::1\"", "\"1:2:3:4:5:6:7:8\"", "\"::\"", "\"1::\""},
     {"\"1:2:3:4:5:6:7\"", "\"::1::\"", "\"1:2:3:4::5:6:7:8\""}},
    {R"({"type":"string","format":"email"})", {"\"a.b@c.org\""}, {"\"a@\"", "\"a b@c.org\""}},
    {R"({"type":"integer","minimum":-3,"exclusiveMaximum":12})",
     {"-3", "0", "11"},
     {"-4", "12", "1.0", "-0"}},
    {R"({"type":"integer","exclusiveMinimum":0.5,"maximum":3.9})", {"1", "3"}, {"0", "4"}},
    {R"({"type":"number","minimum":0,"maximum":1})",
     {"0", "1", "0.5", "0.000001", "1.0"},
     {"-0.1", "1.000001", "2", "1e0", "-1"}},
    {R"({"type":"number","exclusiveMinimum":-0.25,"exclusiveMaximum":2.5})",
     {"0", "-0.2", "2.4999", "-0.249"},
     {"-0.25", "2.5", "2.50", "3"}},
    {R"({"type":"number"})",
     {"0", "-1", "1.5", "2e10", "-0.1E-5", "123456789012345678"},
     {"01", ".5", "1.", "+1", "1e", "NaN"}},
    {"true", {"1", "{}", "[[[]]]"}, {"x"}},
};

TEST(GrammarSchema, TakesTheDocumentsOfTheListsAndNoOthers) {
  for (const Lists& list : kLists) {
    const auto grammar = compiled(list.schema);
    ASSERT_TRUE(grammar) << list.schema << " " << grammar.error().message;
    for (const std::string& text : list.taken) {
      EXPECT_TRUE(takes(*grammar, text)) << list.schema << " " << text;
    }
    for (const std::string& text : list.refused) {
      EXPECT_FALSE(takes(*grammar, text)) << list.schema << " " << text;
    }
  }
}

TEST(GrammarSchema, WhatIsNotEnforcedIsRefusedWithThePathOfItsKeyword) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"type":"object","patternProperties":{"a":{}}})",
       "s.patternProperties: wanted a keyword"},
      {R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})",
       "s.properties.a.uniqueItems: "},
      {R"({"type":"array","items":{"not":{"type":"null"}}})", "s.items.not: "},
      {R"({"type":"integer","multipleOf":2})", "s.multipleOf: "},
      {R"({"type":"string","format":"idn-email"})",
       "s.format: wanted a format that can be enforced, found \"idn-email\""},
      {R"({"type":"string","pattern":"(a)\\1"})", "s.pattern: byte 3: "},
      {R"({"type":"string","pattern":"a","maxLength":3})", "s.maxLength: wanted no pattern"},
      {R"({"type":"string","minLength":100000})", "s.minLength: wanted at most 16384"},
      {R"({"allOf":[{"type":"string"},{"minLength":2}]})", "s.allOf: wanted allOf of one"},
      {R"({"anyOf":[{"type":"string"},{"if":{}}]})", "s.anyOf[1].if: "},
      {R"({"a\nb":1})", "s.a\\x0Ab: wanted a keyword"},
      {R"({"enum":[1],"minimum":0})", "s.minimum: wanted no enum beside it"},
      {R"({"type":"object","anyOf":[{}]})", "s.type: wanted no anyOf beside it"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"x-y":1}}})", "s.$defs.a.x-y: "},
      {R"({"properties":{"a":{"$ref":"#/$defs/b"}}})", "s.properties.a.$ref: "},
      {R"({"$ref":"#/examples/0","examples":[{"type":3}]})",
       "s.$ref: wanted a reference to a schema"},
      {R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})",
       "s: wanted rules that do not begin with themselves"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
       "s: wanted a form that some text has"},
      {R"({"type":"object","properties":{},"required":["a"]})", "s.required[0]: "},
      {R"({"type":"number","minimum":0.12345678})", "s.minimum: wanted a number"},
      {R"({"type":"number","minimum":0,"exclusiveMinimum":0})",
       "s.exclusiveMinimum: wanted no second"},
      {R"({"type":"integer","minimum":1e300})", "s.minimum: wanted a 64-bit integer"},
      {R"({"type":"foo"})", "s.type: "},
      {"false", "s: wanted a form that some text has"},
      {R"({"type":"array","minItems":9000,"maxItems":9000,"items":{"type":"array","minItems":9000,)"
       R"("items":{"type":"array","minItems":9000,"items":{"const":"123456"}}}})",
       ""}};
  for (const auto& [schema, message] : cases) {
    const auto grammar = compiled(schema);
    if (message.empty()) continue;  // large, and within the bounds
    ASSERT_FALSE(grammar) << schema;
    EXPECT_THAT(grammar.error().message, StartsWith(message)) << schema;
  }
  std::string large = R"({"anyOf":[)";
  for (int i = 0; i < 30; ++i) {
    large += (i == 0 ? "" : ",") + std::string(R"({"type":"string","minLength":16000})");
  }
  const auto too_large = compiled(large + "]}");
  EXPECT_THAT(too_large.error().message, StartsWith("s: wanted a form of at most"));
  EXPECT_EQ(too_large.error().code, ErrorCode::kInvalid);  // it never fits: no reason to try again
}

// The library's reader keeps what a double holds of a longer literal.
TEST(GrammarSchema, AListedNumberThatWasRoundedIsRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"const":123456789012345678901})", "s.const: wanted numbers from -2^63 to 2^64 - 1"},
      {R"({"enum":[1,{"a":[18446744073709551616]}]})", "s.enum[1].a[0]: wanted numbers from"},
      {R"({"const":-9223372036854775809})", "s.const: wanted numbers from"}};
  for (const auto& [schema, message] : cases) {
    const auto grammar = compiled(schema);
    ASSERT_FALSE(grammar) << schema;
    EXPECT_THAT(grammar.error().message, StartsWith(message));
  }
  for (const char* number : {"18446744073709551615", "-9223372036854775808", "0.1", "5e-324"}) {
    const auto grammar = compiled(std::string(R"({"const":)") + number + "}");
    ASSERT_TRUE(grammar) << number;
    EXPECT_TRUE(takes(*grammar, number));
  }
}

TEST(GrammarSchema, ARefusedNumberIsToldAsItWas) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"minItems":4611686018427387904})",
       "s.minItems: wanted at most 16384, found 4611686018427387904"},
      {R"({"maxLength":9223372036854775808})",
       "s.maxLength: wanted at most 16384, found 9223372036854775808"},
      {R"({"minLength":1.5})", "s.minLength: wanted a whole number from 0 up, found 1.5"},
      {R"({"minLength":-1})", "s.minLength: wanted a whole number from 0 up, found -1"},
      {R"({"multipleOf":0})", "s.multipleOf: wanted a number above 0, found 0"}};
  for (const auto& [schema, message] : cases) {
    const auto grammar = compiled(schema);
    ASSERT_FALSE(grammar) << schema;
    EXPECT_EQ(grammar.error().message, message);
  }
}

// Branches of a oneOf, and whether no value fits two.
TEST(GrammarSchema, AOneOfIsTakenWhereItsBranchesExcludeEachOther) {
  const std::string by_kind =
      R"({"type":"object","properties":{"kind":{"const":"a"},"x":true},"required":["kind"]},)"
      R"({"type":"object","properties":{"kind":{"enum":["b","c"]}},"required":["kind"]})";
  const std::vector<std::pair<std::string, bool>> cases = {
      {R"({"type":"string"},{"type":["integer","null"]})", true},
      {R"({"type":"number"},{"type":"integer"})", false},
      {R"({"const":2.5},{"type":"integer"})", true},
      {R"({"const":2},{"type":"number"})", false},
      {R"({"const":1},{"const":1.0})", false},
      {R"({"enum":[1,"a"]},{"enum":[2,"b",{"k":[1]}]})", true},
      {R"({"enum":[1,{"k":1,"l":2}]},{"const":{"l":2,"k":1.0}})", false},
      {R"({"enum":[1,"a"],"type":"integer"},{"const":"a"})", true},
      {R"({"const":"a"},{"type":"string","minLength":2})", false},
      {R"({"minLength":1},{"type":"integer"})", false},
      {R"({"type":"string"},{"anyOf":[{"type":"null"},{"oneOf":[{"type":"integer"}]}]})", true},
      {R"({"type":"string"},{"anyOf":[{"type":"null"},{"type":"string"}]})", false},
      {R"({"type":"string"},false)", true},
      {R"({"type":"string"},true)", false},
      {by_kind, true},
      {by_kind + R"(,{"type":"object","properties":{"kind":{"const":"c"}},"required":["kind"]})",
       false},
      {by_kind + R"(,{"type":"object","properties":{"kind":{"const":"d"}}})", true},
      {by_kind + R"(,{"type":"object","properties":{"other":true}})", false},
      {by_kind + R"(,{"type":"object","properties":{"o":true},"additionalProperties":false})",
       true},
      {R"({"type":"object","properties":{"kind":{"const":"a"}}},)"
       R"({"type":"object","properties":{"kind":{"const":"b"}}})",
       false},
      {R"({"$ref":"#/$defs/a"},{"type":"object","properties":{"in":{"type":"null"}}})", true},
      {R"({"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"})", false}};
  for (const auto& [branches, exclude] : cases) {
    const auto grammar =
        compiled(R"({"properties":{"p":{"oneOf":[)" + branches +
                 R"(]}},"$defs":{"a":{"type":"object","properties":{"in":{"type":"array","items":)"
                 R"({"$ref":"#/$defs/a"}}},"required":["in"]}}})");
    EXPECT_EQ(grammar.has_value(), exclude) << branches;
    if (!grammar) {
      EXPECT_THAT(grammar.error().message, StartsWith("s.properties.p.oneOf: wanted branches"));
    }
  }
}

// Each pair of nodes leads to pairs of their children: too many to follow.
TEST(GrammarSchema, AOneOfThatTakesLongToTellApartIsRefused) {
  std::string node;
  for (const char* name : {"a", "b", "c", "d"}) {
    node +=
        R"(,"_":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"array","items":{"$ref":"#/$defs/n"}}]})";
    node.replace(node.rfind('_'), 1, name);
  }
  const auto grammar = compiled(
      R"({"oneOf":[{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"}],"$defs":{"n":{"type":"object",)"
      R"("properties":{)" +
      node.substr(1) + R"(},"required":["a","b","c","d"]}}})");
  ASSERT_FALSE(grammar);
  EXPECT_THAT(grammar.error().message, StartsWith("s.oneOf: wanted branches"));
}

// So many values that a position for each of them would pass the bounds.
TEST(GrammarSchema, ALargeEnumSharesItsBeginnings) {
  std::string schema = R"({"enum":["a","ab")";
  for (int i = 0; i < 20'000; ++i) schema += ",\"item-" + std::to_string(i) + "\"";
  const auto grammar = compiled(schema + "]}");
  ASSERT_TRUE(grammar) << grammar.error().message;
  for (const char* text : {"\"a\"", "\"ab\"", "\"item-0\"", "\"item-1999\"", "\"item-19999\""}) {
    EXPECT_TRUE(takes(*grammar, text)) << text;
  }
  for (const char* text : {"\"abc\"", "\"\"", "\"item-\"", "\"item-20000\"", "\"item-01\""}) {
    EXPECT_FALSE(takes(*grammar, text)) << text;
  }
}

TEST(GrammarSchema, AnyObjectIsTakenUpToItsDepth) {
  const auto grammar = object_grammar();
  ASSERT_TRUE(grammar);
  EXPECT_TRUE(takes(*grammar, R"({"a": [1, {"b": null}], "": "x"})"));
  EXPECT_FALSE(takes(*grammar, "[]"));
  const auto nested = [](int depth) {
    return "{\"a\":" + std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']') + "}";
  };
  EXPECT_TRUE(takes(*grammar, nested(kJsonDepth - 1)));
  EXPECT_FALSE(takes(*grammar, nested(kJsonDepth)));
}

}  // namespace
}  // namespace fathom
