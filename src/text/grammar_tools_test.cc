// Goal: a block of calls names the offered tools, those of strict ones have arguments that their
// schemas allow, and all else is free. Method: texts by hand, taken or refused; random schemas and
// random walks under the masks, read by the parser of answers and judged by a validator that knows
// nothing of grammars.
#include "text/grammar_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/grammar_test.h"
#include "text/output_parser.h"
#include "text/schema_walk_test.h"

namespace fathom {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// As a body names them: {"name": schema, ...}.
Result<ChatRequest> request_of(const std::string& tools, const std::string& more = "") {
  const Json named = *parse_json(tools);
  std::string body = R"({"messages":[{"role":"user","content":"x"}],"tools":[)";
  for (const JsonMember& tool : *named.as_object()) {
    if (!body.ends_with('[')) body += ",";
    body += R"({"type":"function","function":{"strict":true,"name":)" + json_quoted(tool.key) +
            R"(,"parameters":)" + json_text(tool.value) + "}}";
  }
  return parse_chat_request(body + "]" + more + "}");
}

Result<Grammar> compiled(const std::string& tools, BeforeCalls before = BeforeCalls::kAnswer) {
  const auto request = request_of(tools);
  if (!request) return request.error();
  return tools_grammar(offered_tools(*request), before);
}

const char kTools[] =
    R"({"tide":{"type":"object","properties":{"harbour":{"type":"string"},"days":)"
    R"({"type":"integer","minimum":1,"maximum":14},"unit":{"anyOf":[{"type":"string",)"
    R"("enum":["m","ft"]},{"type":"null"}]}}},"ping":null})";

std::string block(const std::string& calls) {
  return "<｜DSML｜ calls>\n" + calls + "\n</｜DSML｜ calls>";
}
std::string call(const std::string& name, const std::string& parameters) {
  return "<｜DSML｜ invoke name=\"" + name + "\">\n" + parameters + "\n</｜DSML｜ invoke>";
}
std::string parameter(const std::string& name, const std::string& rest) {
  return "<｜DSML｜ parameter name=\"" + name + "\" string=\"" + rest + "</｜DSML｜ parameter>";
}
std::string tide(const std::string& harbour, const std::string& days, const std::string& unit) {
  return call("tide", parameter("harbour", harbour) + "\n" + parameter("days", days) + "\n" +
                          parameter("unit", unit));
}

TEST(GrammarTools, TextsAroundABlockAreFreeAndCallsAreNot) {
  const auto grammar = compiled(kTools);
  ASSERT_TRUE(grammar) << grammar.error().message;
  const std::string good = tide("true\">Brest </x> \"é\"\n<｜DSML", "false\">14", "true\">ft");
  for (const std::string& text :
       {std::string(),
        std::string("No: </think> <｜DSML calls> is text, and invoke name=\"x\" too."),
        std::string("</｜DSML｜ calls>"), block(good), "thought</think>\n\n" + block(good),
        "in the midst of reasoning " + block(call("ping", "")),
        block(tide("true\">", "false\">1", "false\">null") + "\n" + call("ping", "") + "\n" + good),
        "<" + block(call("ping", "")), "<｜DS" + block(call("ping", ""))}) {
    EXPECT_TRUE(takes(*grammar, text)) << text;
  }
  for (const std::string& text :
       {std::string("<｜DSML｜"), std::string("a <｜DSML｜ invoke name=\"ping\">"), block(""),
        block(call("pong", "")), block(call("pin", "")), block(good) + " ",
        block(good) + block(good), block(tide("true\">x", "false\">15", "true\">m")),
        block(tide("true\">x", "true\">14", "true\">m")),
        block(tide("false\">\"x\"", "false\">14", "true\">m")),
        block(tide("true\">x", "false\">14", "true\">null")),
        block(tide("true\">x", "false\">14", "true\">mm")),
        block(call("tide", parameter("harbour", "true\">x"))),
        block(call("ping", parameter("a", "true\">x"))), block(good) + "\n</｜DSML｜ calls>"}) {
    EXPECT_FALSE(takes(*grammar, text)) << text;
  }
}

TEST(GrammarTools, AForcedBlockHasACall) {
  const auto grammar = compiled(kTools, BeforeCalls::kOpening);
  ASSERT_TRUE(grammar);
  EXPECT_TRUE(takes(*grammar, call("ping", "") + "\n</｜DSML｜ calls>"));
  EXPECT_EQ(taken(*grammar, ""), Taken::kBegun);
  EXPECT_EQ(taken(*grammar, "</｜DSML｜ calls>"), Taken::kNo);
  EXPECT_EQ(taken(*grammar, "I"), Taken::kNo);
}

TEST(GrammarTools, WhatStandsBeforeANeededBlock) {
  const auto text = compiled(kTools, BeforeCalls::kText);
  const auto feeds = compiled(kTools, BeforeCalls::kFeeds);
  const std::string good = block(call("ping", ""));
  ASSERT_TRUE(text);
  ASSERT_TRUE(feeds);
  EXPECT_TRUE(takes(*text, good));
  EXPECT_TRUE(takes(*text, "thought</think>\n\n" + good));
  EXPECT_EQ(taken(*text, "thought</think> said"), Taken::kBegun);
  EXPECT_TRUE(takes(*feeds, good));
  EXPECT_TRUE(takes(*feeds, "\n\n" + good));
  EXPECT_EQ(taken(*feeds, ""), Taken::kBegun);
  EXPECT_EQ(taken(*feeds, "I"), Taken::kNo);
  EXPECT_EQ(taken(*feeds, "\n\n\n"), Taken::kNo);
}

TEST(GrammarTools, ACallOfAToolThatIsNotStrictHasItsNameAndFreeParameters) {
  const ToolDefinition strict = {
      .name = "tide",
      .strict = true,
      .schema = *parse_json(R"({"type":"object","properties":{"days":{"type":"integer"}}})"),
      .schema_path = "tools[0]"};
  const ToolDefinition loose = {.name = "ping", .parameters = *parse_json(R"({"type":"object"})")};
  const ToolDefinition* tools[] = {&strict, &loose};
  const auto grammar = tools_grammar(tools, BeforeCalls::kOpening);
  ASSERT_TRUE(grammar) << grammar.error().message;
  const auto takes_call = [&](const std::string& name, const std::string& parameters) {
    return takes(*grammar, call(name, parameters) + "\n</｜DSML｜ calls>");
  };
  const std::string text = parameter("a b", "true\">é <x>\n</｜DSML");
  const std::string object = parameter("ü", "false\">{\"k\":[1,\"\\uff5c\"]}");
  EXPECT_TRUE(takes_call("ping", ""));
  EXPECT_TRUE(takes_call("ping", text));
  EXPECT_TRUE(takes_call("ping", object + "\n" + text + "\n" + object));
  EXPECT_TRUE(takes_call("tide", parameter("days", "false\">3")));
  EXPECT_FALSE(takes_call("tide", text));
  EXPECT_FALSE(takes_call("tide", parameter("days", "false\">3") + "\n" + text));
  EXPECT_FALSE(takes_call("pong", ""));
  EXPECT_FALSE(takes_call("ping", parameter("", "true\">x")));
  EXPECT_FALSE(takes_call("ping", parameter("a", "false\">x")));
  EXPECT_FALSE(takes_call("ping", parameter("a", "true\">x</｜DSML｜")));
  EXPECT_FALSE(takes_call("ping", "free text"));
}

TEST(GrammarTools, ValuesOfEveryKindHaveTheirForm) {
  const auto grammar = compiled(
      R"({"f":{"type":"object","properties":{)"
      R"("a":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]},)"
      R"("b":{"type":"string","pattern":"^.{2}$"},"c":{"$ref":"#/$def/n"},)"
      R"("d":{"type":"object","properties":{"k｜":{"type":["string","null"]}},"required":null}},)"
      R"("$def":{"n":{"type":"object","properties":{"next":{"type":"array","items":)"
      R"({"$ref":"#/$def/n"}}}}}}})");
  ASSERT_TRUE(grammar) << grammar.error().message;
  const auto takes_values = [&](const std::string& a, const std::string& b, const std::string& c,
                                const std::string& d) {
    return takes(*grammar, block(call("f", parameter("a", a) + "\n" + parameter("b", b) + "\n" +
                                               parameter("c", c) + "\n" + parameter("d", d))));
  };
  const std::string list = "false\">[\"</\\uff5cDSML\\uff5c\", \"x\"]";
  const std::string node = "false\">{\"next\": [{\"next\":[]}]}";
  const std::string object = "false\">{\"k\\uff5c\": \"\"}";
  EXPECT_TRUE(takes_values("true\">[]", "true\">é<", node, object));
  EXPECT_TRUE(takes_values(list, "true\">\"\"", node, object));
  EXPECT_FALSE(takes_values("false\">\"x\"", "true\">é<", node, object));
  EXPECT_FALSE(takes_values("false\">[\"｜\"]", "true\">é<", node, object));
  EXPECT_FALSE(takes_values("false\">[1]", "true\">é<", node, object));
  EXPECT_FALSE(takes_values(list, "true\">abc", node, object));
  EXPECT_FALSE(takes_values(list, "true\">a｜", node, object));
  EXPECT_FALSE(takes_values(list, "true\">ab", "false\">{}", object));
  EXPECT_FALSE(takes_values(list, "true\">ab", node, "false\">{}"));
  EXPECT_FALSE(takes_values(list, "true\">ab", node, "false\">{\"k\\uff5c\":1}"));
}

TEST(GrammarTools, WhatCannotBeEnforcedIsRefusedWithItsPath) {
  const auto refusal = [](const std::string& properties) {
    const auto grammar =
        compiled(R"({"g":null,"f":{"type":"object","properties":{)" + properties + "}}}");
    return grammar ? std::string() : grammar.error().message;
  };
  const std::string place = "tools[1].function.parameters.properties.";
  EXPECT_THAT(refusal(R"("a":{"type":"integer","multipleOf":2})"),
              StartsWith(place + "a.multipleOf: wanted a keyword that can be enforced"));
  EXPECT_THAT(refusal(R"("a":{"type":"array","items":{"type":"string","pattern":"(?=x)y"}})"),
              StartsWith(place + "a.items.pattern: byte 0: wanted no look-around"));
  EXPECT_THAT(refusal(R"("a":{"type":"array","items":{"type":"null"},"uniqueItems":true})"),
              StartsWith(place + "a.uniqueItems: "));
  EXPECT_THAT(refusal(R"("a\"b":{"type":"null"})"),
              StartsWith(place + "a\"b: wanted a name without quotation marks"));
  EXPECT_THAT(refusal(R"("a":{"type":"string","enum":["x</｜DSML｜"]})"),
              StartsWith(place + "a.enum: wanted no text that holds"));
  EXPECT_THAT(refusal(R"("a":{"$ref":"#/$def/x"})"), StartsWith(place + "a.$ref: wanted"));
  EXPECT_THAT(refusal(R"("a":{"$ref":"#/$def/x"}},"$def":{"x":{"type":"null","minItems":"2"})"),
              StartsWith("tools[1].function.parameters.$def.x.minItems: wanted"));
  EXPECT_THAT(refusal(R"("a":{"type":"null"}},"minProperties":2,"$def":{)"),
              StartsWith("tools[1].function.parameters.minProperties: wanted"));
}

// As the library has it.
TEST(GrammarTools, StrictToolsStandAlone) {
  const auto mixed = parse_chat_request(
      std::string_view(R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function",)"
                       R"("function":{"name":"a","strict":true}},{"type":"function","function":)"
                       R"({"name":"b"}}]})"));
  ASSERT_FALSE(mixed);
  EXPECT_THAT(mixed.error().message, HasSubstr("wanted strict on all tools or on none"));
}

const char kClose[] = "</｜DSML｜ parameter>";

const TokenTrie& tokens() {
  static const TokenTrie kTrie = [] {
    std::vector<std::string> pieces;
    for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
    for (const char* piece : {kClose, "xy\"",       "12-", "\":", "\",",   "{\"",      "\"}",
                              "</",   " parameter", ">\n", "]</", "\"></", "\xEF\xBD", "\x9C",
                              "<｜",  "true",       "x\"", "}]",  "é",     "uff5c",    "\\u"}) {
      pieces.emplace_back(piece);
    }
    std::vector<bool> added(pieces.size());
    for (const char* marker : {"</think>", "｜DSML｜", "<end>"}) {
      pieces.emplace_back(marker);
      added.push_back(true);
    }
    return TokenTrie(pieces, added);
  }();
  return kTrie;
}

// Every property is required of a strict tool, and strict forms know neither open objects nor
// tuples.
std::string strict_object(Schemas& schemas, int n) {
  std::string properties;
  std::string names;
  for (int i = 0; i < n; ++i) {
    const std::string name = json_quoted(i == 0 ? "a b" : "é" + std::to_string(i));
    const bool inner = i == 2;
    properties += (i == 0 ? "" : ",") + name + ":" +
                  (inner ? strict_object(schemas, 2) : schemas.draw_strict());
    names += (i == 0 ? "" : ",") + name;
  }
  return R"({"type":"object","properties":{)" + properties + R"(},"required":[)" + names +
         R"(],"additionalProperties":false})";
}

TEST(GrammarTools, WhatIsDrawnUnderMasksCallsTheToolsAsTheirSchemasAllow) {
  Schemas schemas(21);
  std::mt19937 random(22);
  size_t n_calls = 0;
  for (int i = 0; i < 250; ++i) {
    const std::string one = strict_object(schemas, 3);
    const std::string two = strict_object(schemas, i % 3);
    SCOPED_TRACE(one + " " + two);
    const auto grammar =
        compiled("{\"one\":" + one + ",\"two\":" + two + "}", BeforeCalls::kOpening);
    ASSERT_TRUE(grammar) << grammar.error().message;
    TokenMatcher matcher(*grammar, tokens());
    for (int k = 0; k < 4; ++k) {
      const std::string text = drawn(matcher, tokens(), random, kClose);
      const ParsedOutput output = parse_output(text, {.start = OutputStart::kCalls, .tools = true});
      ASSERT_FALSE(output.tool_calls.empty()) << text;
      EXPECT_EQ(output.finish_reason, FinishReason::kToolCalls);
      for (const ParsedCall& call : output.tool_calls) {
        ASSERT_TRUE(call.name == "one" || call.name == "two") << text;
        const auto arguments = parse_json(call.arguments);
        ASSERT_TRUE(arguments) << text << " " << arguments.error().message;
        ASSERT_TRUE(valid(*parse_json(call.name == "one" ? one : two), *arguments)) << text;
        ++n_calls;
      }
    }
  }
  EXPECT_GE(n_calls, 1000U);
}

// The mark of the format is one token: it may come anywhere, but behind "<" it opens a block.
TEST(GrammarTools, TheMarkMayComeAsOneToken) {
  const auto grammar = compiled(kTools);
  ASSERT_TRUE(grammar);
  TokenMatcher matcher(*grammar, tokens());
  const TokenId mark = tokens().added_token("｜DSML｜");
  const auto after = [&](const std::string& bytes) {
    GrammarState state = *matcher.start();
    for (const char c : bytes) EXPECT_TRUE(*matcher.accept(state, static_cast<uint8_t>(c)));
    return state;
  };
  GrammarState state = after("so ");
  EXPECT_TRUE(*matcher.accept(state, mark));
  EXPECT_TRUE(state.can_end);
  state = after("so <");
  EXPECT_TRUE(state.can_end);
  EXPECT_TRUE(*matcher.accept(state, mark));
  EXPECT_FALSE(state.can_end);
  EXPECT_TRUE(*matcher.accept(state, ' '));
  EXPECT_TRUE(*matcher.accept(state, 'c'));
  EXPECT_FALSE(*matcher.accept(state, ' '));
  state = after("");
  EXPECT_TRUE(*matcher.accept(state, tokens().added_token("</think>")));
  EXPECT_FALSE(*matcher.accept(state, tokens().added_token("<end>")));
}

}  // namespace
}  // namespace fathom
