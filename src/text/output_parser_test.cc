// The streaming parser and the strict grammar against tests/golden/chat/parser.jsonl: with the
// given pieces, in one piece, cut at every byte, and byte by byte.

#include "text/output_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "text/golden_test.h"
#include "text/json_text.h"
#include "text/markers.h"
#include "text/strict_output.h"

namespace fathom {
namespace {

using Pieces = std::vector<std::string>;

bool flag(const boost::json::value& c, const char* key) {
  const auto* value = c.as_object().if_contains(key);
  return value != nullptr && value->as_bool();
}

OutputSettings settings_of(const boost::json::value& c) {
  OutputSettings settings;
  settings.tools = flag(c, "tools");
  settings.json_mode = flag(c, "json_mode");
  if (const auto* stop = c.as_object().if_contains("stop")) {
    for (const auto& text : stop->as_array()) settings.stop.push_back(string_of(text));
  }
  const auto* prefix = c.as_object().if_contains("prefix");
  const bool thinking = flag(c, "thinking");
  settings.start = thinking ? OutputStart::kReasoning : OutputStart::kContent;
  if (flag(c, "starts_in_calls")) settings.start = OutputStart::kCalls;
  if (prefix != nullptr && thinking) {
    settings.start = prefix->at("content").as_string().empty() ? OutputStart::kReasoningContinued
                                                               : OutputStart::kContentContinued;
  }
  return settings;
}

FinishReason finish_of(const boost::json::value& c) {
  return c.at("backend_finish").as_string() == "length" ? FinishReason::kLength
                                                        : FinishReason::kStop;
}

ParsedOutput parse_pieces(const Pieces& pieces, const OutputSettings& settings,
                          FinishReason engine) {
  OutputParser parser(settings);
  ParsedOutput output = parse_output("", settings, engine);
  for (const std::string& piece : pieces) accumulate(&output, parser.feed(piece));
  accumulate(&output, parser.finish());
  output.finish_reason = parser.finish_reason(engine);
  return output;
}

std::string show(const ParsedOutput& output) {
  std::string out = "reasoning " + (output.reasoning ? json_quoted(*output.reasoning) : "null");
  out += " content " + json_quoted(output.content);
  for (const ParsedCall& call : output.tool_calls) {
    out += " call " + json_quoted(call.name) + " " + json_quoted(call.arguments);
  }
  return out + " finish " + finish_reason_name(output.finish_reason);
}

std::string collapse_spaces(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || out.empty() || out.back() != ' ') out.push_back(c);
  }
  return out;
}

// The golden result in the same form; calls that were cut have the same valid prefix as ours.
ParsedOutput expected_of(const boost::json::value& c) {
  const auto& tolerant = c.at("tolerant");
  ParsedOutput output;
  if (!tolerant.at("reasoning").is_null()) output.reasoning = string_of(tolerant.at("reasoning"));
  output.content = string_of(tolerant.at("content"));
  for (const auto& call : tolerant.at("tool_calls").as_array()) {
    output.tool_calls.push_back({string_of(call.at("name")), string_of(call.at("arguments"))});
  }
  const std::string finish = string_of(tolerant.at("finish_reason"));
  output.finish_reason = finish == "tool_calls" ? FinishReason::kToolCalls
                         : finish == "length"   ? FinishReason::kLength
                                                : FinishReason::kStop;
  return output;
}

Pieces pieces_of(const boost::json::value& c) {
  Pieces pieces;
  for (const auto& piece : c.at("chunks").as_array()) pieces.push_back(string_of(piece));
  return pieces;
}

std::string joined(const Pieces& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

TEST(OutputParser, GivesEveryGoldenResultHoweverTheTextIsCut) {
  const auto cases = golden_json_lines("chat/parser.jsonl");
  ASSERT_EQ(cases.size(), 84u);
  for (const auto& c : cases) {
    const std::string name = string_of(c.at("name"));
    const OutputSettings settings = settings_of(c);
    const FinishReason engine = finish_of(c);
    const Pieces pieces = pieces_of(c);
    const std::string text = joined(pieces);

    const ParsedOutput whole = parse_output(text, settings, engine);
    ParsedOutput wanted = expected_of(c);
    ParsedOutput found = whole;
    if (c.as_object().contains("compare")) {
      wanted.content = collapse_spaces(wanted.content);
      found.content = collapse_spaces(found.content);
    }
    EXPECT_EQ(show(found), show(wanted)) << name;
    EXPECT_EQ(show(parse_pieces(pieces, settings, engine)), show(whole)) << name;

    Pieces bytes;
    for (const char byte : text) bytes.emplace_back(1, byte);
    EXPECT_EQ(show(parse_pieces(bytes, settings, engine)), show(whole)) << name;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const Pieces halves = {text.substr(0, cut), text.substr(cut)};
      ASSERT_EQ(show(parse_pieces(halves, settings, engine)), show(whole)) << name << " " << cut;
    }
  }
}

TEST(StrictOutput, GivesEveryGoldenResultOrFault) {
  size_t n_faults = 0;
  size_t n_results = 0;
  for (const auto& c : golden_json_lines("chat/parser.jsonl")) {
    const std::string name = string_of(c.at("name"));
    const std::string text = joined(pieces_of(c)) + std::string(kEosText);
    const auto result = parse_strict_output(text, flag(c, "thinking"));
    const auto* fault = std::get_if<StrictFault>(&result);
    if (const auto* wanted = c.as_object().if_contains("strict_error")) {
      ++n_faults;
      ASSERT_NE(fault, nullptr) << name;
      EXPECT_EQ(strict_fault_name(*fault), string_of(*wanted)) << name;
    } else if (const auto* strict = c.as_object().if_contains("strict")) {
      ++n_results;
      ASSERT_EQ(fault, nullptr) << name << " " << strict_fault_name(*fault);
      const auto& output = std::get<StrictOutput>(result);
      EXPECT_EQ(output.reasoning, string_of(strict->at("reasoning"))) << name;
      EXPECT_EQ(output.content, string_of(strict->at("content"))) << name;
      const auto& calls = strict->at("tool_calls").as_array();
      ASSERT_EQ(output.tool_calls.size(), calls.size()) << name;
      for (size_t i = 0; i < calls.size(); ++i) {
        EXPECT_EQ(output.tool_calls[i].name, string_of(calls[i].at("name"))) << name;
        EXPECT_EQ(output.tool_calls[i].arguments, string_of(calls[i].at("arguments"))) << name;
      }
    }
  }
  EXPECT_EQ(n_faults, 34u);
  EXPECT_EQ(n_results, 35u);
}

TEST(StrictOutput, NamesTheFaultsThatNoGoldenCaseHas) {
  const auto fault = [](std::string_view text) {
    const auto result = parse_strict_output(text, false);
    return std::string(strict_fault_name(std::get<StrictFault>(result)));
  };
  const std::string open = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n";
  const std::string parameter =
      "<｜DSML｜ parameter name=\"a\" string=\"true\">1</｜DSML｜ parameter>\n";
  EXPECT_EQ(fault("no end"), "missing_eos");
  EXPECT_EQ(fault("\n\n<｜DSML｜ calls>\n"), "unterminated_calls");
  EXPECT_EQ(fault("\n\n<｜DSML｜ calls"), "unterminated_calls");
  EXPECT_EQ(fault(open + parameter + parameter + "</｜DSML｜ invoke>\n</｜DSML｜ calls>"),
            "duplicate_parameter");
  EXPECT_EQ(fault("a<｜begin▁of▁sentence｜>b<｜end▁of▁sentence｜>"), "special_token_in_text");
}

// Random texts made of markers, pieces of markers and other bytes: any cutting gives one result.
TEST(OutputParser, RandomMarkupCutAtRandomGivesOneResult) {
  const std::vector<std::string> words = {"\n",
                                          "\n\n",
                                          "</think>",
                                          "<think>",
                                          "<",
                                          "</",
                                          "<｜DSML｜",
                                          "</｜DSML｜",
                                          "｜DSML｜",
                                          " calls>",
                                          "tool_calls>",
                                          " invoke name=\"",
                                          "f\"",
                                          ">",
                                          "parameter name=\"",
                                          "k\" string=\"",
                                          "true\">",
                                          "false\">",
                                          "x",
                                          "\"",
                                          "\\",
                                          "\x01",
                                          "é",
                                          "\xEF",
                                          "\xFF",
                                          "```json\n",
                                          "```",
                                          "{",
                                          "[",
                                          "STOP",
                                          "ST",
                                          "invoke",
                                          "</｜DSML｜ calls>",
                                          "</｜DSML｜ invoke>",
                                          "</｜DSML｜ parameter>",
                                          " "};
  const uint32_t seed = 20250117;
  std::mt19937 random(seed);
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (uint32_t n = random() % 24; n > 0; --n) text += words[random() % words.size()];
    OutputSettings settings;
    settings.start = static_cast<OutputStart>(random() % 5);
    settings.tools = random() % 4 != 0;
    settings.json_mode = random() % 4 == 0;
    if (random() % 2 == 0) settings.stop = {"STOP", "\n<"};
    const std::string whole = show(parse_output(text, settings));
    Pieces pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + random() % 5;
      pieces.push_back(text.substr(at, n));
      at += n;
    }
    ASSERT_EQ(show(parse_pieces(pieces, settings, FinishReason::kStop)), whole)
        << "seed " << seed << " round " << round << " text " << json_quoted(text);
  }
}

TEST(OutputParser, DeltasComeAsSoonAsTheyAreCertain) {
  OutputParser parser({.start = OutputStart::kReasoning, .tools = true});
  const auto text_of = [&parser](std::string_view bytes) {
    std::string out;
    for (const OutputDelta& delta : parser.feed(bytes)) out += delta.text + "|";
    return out;
  };
  EXPECT_EQ(text_of("ab\n<"), "ab|");
  EXPECT_EQ(text_of("c"), "\n<c|");
  EXPECT_EQ(text_of("\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f"), "");
  EXPECT_EQ(text_of("\">\n<｜DSML｜ parameter name=\"k\" string=\"true\">v<"), "f|{\"k\": \"v|");
  EXPECT_EQ(text_of("x"), "<x|");
  EXPECT_EQ(text_of("</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"), "\"}|");
  EXPECT_FALSE(parser.done());
  EXPECT_EQ(text_of("</｜DSML｜ calls>more"), "");
  EXPECT_TRUE(parser.done());
  EXPECT_EQ(parser.finish_reason(FinishReason::kStop), FinishReason::kToolCalls);
  EXPECT_EQ(parser.finish_reason(FinishReason::kLength), FinishReason::kLength);
}

TEST(OutputParser, AStopStringOutranksTheEnginesReason) {
  const OutputSettings settings = {.stop = {"END"}};
  EXPECT_EQ(parse_output("aEND", settings, FinishReason::kLength).finish_reason,
            FinishReason::kStop);
  EXPECT_EQ(parse_output("aEN", settings, FinishReason::kLength).finish_reason,
            FinishReason::kLength);
}

// As the library does: a line feed that breaks off the beginning of a marker is kept.
TEST(OutputParser, SaysWhereItIs) {
  OutputParser parser({.start = OutputStart::kReasoning, .stop = {"STOP"}});
  EXPECT_TRUE(parser.in_reasoning());
  parser.feed("r</th");
  EXPECT_TRUE(parser.in_reasoning());
  EXPECT_TRUE(parser.holds());
  parser.feed("ink>");
  EXPECT_FALSE(parser.in_reasoning());
  EXPECT_FALSE(parser.holds());
  parser.feed("\n\n");  // dropped, not held
  EXPECT_FALSE(parser.holds());
  parser.feed("a ST");
  EXPECT_TRUE(parser.holds());
  EXPECT_FALSE(parser.stopped_by());
  parser.feed("OP");
  EXPECT_EQ(parser.stopped_by(), "STOP");
}

TEST(OutputParser, LineFeedsBeforeAMarkerAreSwallowedFromTheSecondOnAfterABrokenOne) {
  const OutputSettings settings = {.start = OutputStart::kReasoning, .tools = true};
  EXPECT_EQ(parse_output("a\n\n</think>", settings).reasoning, "a");
  EXPECT_EQ(parse_output("a<\n\n</think>", settings).reasoning, "a<\n");
  EXPECT_EQ(parse_output("a<\n\n<｜DSML｜", settings).reasoning, "a<\n");
}

// By rule: the library 0.2.0 garbles keys with spaces and passes other bytes through unescaped.
TEST(OutputParser, KeysAreTakenAsTheyAre) {
  const auto output = parse_output(
      "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\\b c\n\" "
      "string=\"false\">1</｜DSML｜ "
      "parameter>\n</｜DSML｜ invoke>",
      {.start = OutputStart::kCalls, .tools = true});
  ASSERT_EQ(output.tool_calls.size(), 1u);
  EXPECT_EQ(output.tool_calls[0].arguments, "{\"a\\\\b c\\n\": 1}");
}

TEST(OutputParser, SettingsFollowTheRequest) {
  const auto start = [](const std::string& rest) {
    const auto request =
        parse_chat_request("{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}" + rest + "}");
    return output_settings(*request);
  };
  const std::string off = R"(,"thinking":{"type":"disabled"})";
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  const auto prefix = [](const std::string& content, const std::string& reasoning) {
    return R"(,{"role":"assistant","prefix":true,"content":")" + content +
           R"(","reasoning_content":")" + reasoning + "\"}]";
  };
  EXPECT_EQ(start("]").start, OutputStart::kReasoning);
  EXPECT_EQ(start("]" + off).start, OutputStart::kContent);
  EXPECT_EQ(start(prefix("c", "r")).start, OutputStart::kContentContinued);
  EXPECT_EQ(start(prefix("", "r")).start, OutputStart::kReasoningContinued);
  EXPECT_EQ(start(prefix("", "")).start, OutputStart::kReasoning);
  EXPECT_EQ(start(prefix("c", "r") + off).start, OutputStart::kContent);
  EXPECT_EQ(start("]" + off + tools + R"(,"tool_choice":"required")").start, OutputStart::kCalls);
  EXPECT_TRUE(start("]" + tools).tools);
  EXPECT_FALSE(start("]" + tools + R"(,"tool_choice":"none")").tools);
  EXPECT_EQ(start(R"(],"stop":"a")").stop, std::vector<std::string>{"a"});
}

}  // namespace
}  // namespace fathom
