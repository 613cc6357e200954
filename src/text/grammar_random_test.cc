// Goal: whatever is drawn under the masks of a schema's grammar is JSON that the schema allows.
// Method: random schemas of every enforced keyword, random walks over a small vocabulary, a strict
// JSON reader, and a validator of this test's own that knows nothing of grammars.
#include <gtest/gtest.h>

#include "text/grammar_schema.h"
#include "text/schema_walk_test.h"

namespace fathom {
namespace {

const TokenTrie& tokens() {
  static const TokenTrie kTrie = [] {
    std::vector<std::string> pieces;
    for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
    for (const char* piece :
         {"\":",  "\",",  "{\"",  "\"}", "}}",   "],",   "[[",      "\":\"",
          "true", "null", "0.",   "99",  "e-",   "\n  ", "\\u00e9", "\\ud83d\\ude00",
          "é",    "abc",  "xy\"", "\"a", "\"ab", ", \"", "}]",      "\\\\",
          "12-",  "\xC3"}) {
      pieces.emplace_back(piece);
    }
    return TokenTrie(pieces, std::vector<bool>(pieces.size()));
  }();
  return kTrie;
}

TEST(GrammarRandom, WhatIsDrawnUnderASchemaIsJsonThatItAllows) {
  Schemas schemas(11);
  std::mt19937 random(12);
  size_t n_bytes = 0;
  for (int i = 0; i < 800; ++i) {
    const std::string text = schemas.draw(3);
    SCOPED_TRACE(text);
    const Json schema = *parse_json(text);
    const auto grammar = schema_grammar(schema, "s");
    ASSERT_TRUE(grammar) << grammar.error().message;
    TokenMatcher matcher(*grammar, tokens());
    for (int k = 0; k < 6; ++k) {
      const std::string document = drawn(matcher, tokens(), random);
      const auto value = parse_json(document);
      ASSERT_TRUE(value) << document << " " << value.error().message;
      ASSERT_TRUE(valid(schema, *value)) << document;
      n_bytes += document.size();
    }
  }
  EXPECT_GT(n_bytes, 800U * 6 * 8);
}

// The validator can say no.
TEST(GrammarRandom, TheValidatorRefuses) {
  const auto refuses = [](const char* schema, const char* value) {
    return !valid(*parse_json(schema), *parse_json(value));
  };
  EXPECT_TRUE(refuses(R"({"type":"integer"})", "1.5"));
  EXPECT_TRUE(refuses(R"({"type":"string","maxLength":1})", "\"ab\""));
  EXPECT_TRUE(refuses(R"({"type":"number","exclusiveMinimum":1})", "1"));
  EXPECT_TRUE(refuses(R"({"type":"array","items":{"const":1},"minItems":2})", "[1]"));
  EXPECT_TRUE(refuses(R"({"type":"array","prefixItems":[{"const":1}]})", "[2]"));
  EXPECT_TRUE(refuses(R"({"type":"object","properties":{"a":true},"required":["a"]})", "{}"));
  EXPECT_TRUE(refuses(R"({"type":"object","additionalProperties":false})", R"({"a":1})"));
  EXPECT_TRUE(refuses(R"({"anyOf":[{"type":"null"},{"enum":[1,2]}]})", "3"));
  EXPECT_TRUE(refuses(R"({"type":"string","pattern":"x+y"})", "\"x\""));
}

}  // namespace
}  // namespace fathom
