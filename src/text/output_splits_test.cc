// Goal: a client's deltas do not depend on how the model's text was cut into tokens. Method: a
// corpus of 1,000 generated answers (reasoning, text, calls with arguments of every kind, and in
// one of three something broken); each is fed in one piece, cut in two at every place where it is
// short, else at random ones, byte by byte, and in random pieces. Neighbouring deltas of one kind
// are joined, and then all must be equal, in order.
#include <gtest/gtest.h>

#include <random>

#include "text/json_text.h"
#include "text/output_parser.h"

namespace fathom {
namespace {

constexpr int kMessages = 1000;
constexpr size_t kShort = 400;      // bytes; cut at every place
constexpr int kCutsOfLong = 200;    // of two pieces
constexpr int kRandomCuttings = 8;  // into pieces of 1 to 9 bytes

class AnswerWriter {
 public:
  explicit AnswerWriter(uint32_t seed) : random_(seed) {}

  uint32_t below(uint32_t n) { return random_() % n; }
  bool one_in(uint32_t n) { return below(n) == 0; }

  OutputSettings settings() {
    OutputSettings made;
    made.start = static_cast<OutputStart>(below(5));
    made.tools = !one_in(5);
    made.json_mode = one_in(8);
    if (one_in(4)) made.stop = {"STOP", "\n\nEND"};
    return made;
  }

  std::string answer(const OutputSettings& settings) {
    std::string text;
    switch (settings.start) {
      case OutputStart::kReasoning:
      case OutputStart::kReasoningContinued:
        text = prose(12) + "</think>";
        [[fallthrough]];
      case OutputStart::kContent:
      case OutputStart::kContentContinued:
        text += "\n\n" + (settings.json_mode ? document() : prose(30));
        if (one_in(2)) text += "\n\n<｜DSML｜ calls>\n" + calls();
        break;
      case OutputStart::kCalls:
        text = calls();
    }
    if (one_in(3)) spoil(&text);
    return text;
  }

 private:
  std::string prose(uint32_t most) {
    static const std::vector<std::string> kWords = {
        "tide ", "harbour, ", "\n",        "é ",    "潮 ",        "🙂",      "a<b ", "</",
        "<｜",   "`x` ",      "{\"k\":1}", "STOP ", "ST",         "\\ ",       "\n\n", "1.5 ",
        "\"",    "<think>",   "｜DSML",    "EN",    "parameter ", "```json\n", "```"};
    std::string text;
    for (uint32_t n = below(most + 1); n > 0; --n) text += kWords[below(kWords.size())];
    return text;
  }
  std::string document() {
    return "```json\n{\"a\": [1, \"" + std::to_string(below(1000)) + "\"]}\n```";
  }
  std::string value(bool is_string) {
    if (is_string) return prose(10);
    static const std::vector<std::string> kValues = {
        "1", "-2.5e3", "true", "null", R"({"a": [1, {"b": "c"}]})", "[]", R"("quoted \u00e9")"};
    return kValues[below(kValues.size())];
  }
  std::string calls() {
    static const std::vector<std::string> kNames = {"get_tide", "f", "read-file", "x.y"};
    std::string text;
    for (uint32_t n = 1 + below(3); n > 0; --n) {
      text += "<｜DSML｜ invoke name=\"" + kNames[below(kNames.size())] + "\">\n";
      for (uint32_t k = below(4); k > 0; --k) {
        const bool is_string = one_in(2);
        text += "<｜DSML｜ parameter name=\"k" + std::to_string(k) + "\" string=\"" +
                (is_string ? "true" : "false") + "\">" + value(is_string) +
                "</｜DSML｜ parameter>\n";
      }
      text += "</｜DSML｜ invoke>\n";
    }
    return text + "</｜DSML｜ calls>";
  }
  void spoil(std::string* text) {
    if (text->empty()) return;
    const size_t at = below(static_cast<uint32_t>(text->size()));
    switch (below(4)) {
      case 0:
        text->resize(at);
        break;
      case 1:
        text->erase(at, 1 + below(12));
        break;
      case 2:
        text->insert(at, one_in(2) ? "<｜DSML｜ invoke name=\"" : "</think>");
        break;
      default:
        (*text)[at] = static_cast<char>(below(256));
    }
  }

  std::mt19937 random_;
};

void join(const std::vector<OutputDelta>& more, std::vector<OutputDelta>* all) {
  for (const OutputDelta& delta : more) {
    const bool joins = !all->empty() && all->back().kind == delta.kind &&
                       all->back().call == delta.call &&
                       delta.kind != OutputDelta::Kind::kCallStart;
    if (joins) {
      all->back().text += delta.text;
    } else {
      all->push_back(delta);
    }
  }
}

// Pieces end where the ascending cuts are.
std::string deltas(const std::string& text, const std::vector<size_t>& cuts,
                   const OutputSettings& settings) {
  OutputParser parser(settings);
  std::vector<OutputDelta> all;
  size_t at = 0;
  for (const size_t cut : cuts) {
    join(parser.feed(std::string_view(text).substr(at, cut - at)), &all);
    at = cut;
  }
  join(parser.feed(std::string_view(text).substr(at)), &all);
  join(parser.finish(), &all);
  std::string shown;
  for (const OutputDelta& delta : all) {
    shown += std::to_string(static_cast<int>(delta.kind)) + " " + std::to_string(delta.call) + " " +
             delta.text + "\n";
  }
  return shown + finish_reason_name(parser.finish_reason(FinishReason::kStop));
}

TEST(OutputSplits, EveryCutOfACorpusGivesTheSameDeltas) {
  AnswerWriter writer(20'261'130);
  size_t n_whole = 0;  // cut at every place
  size_t n_cuts = 0;
  for (int i = 0; i < kMessages; ++i) {
    const OutputSettings settings = writer.settings();
    const std::string text = writer.answer(settings);
    SCOPED_TRACE("message " + std::to_string(i) + ": " + json_quoted(text));
    const std::string whole = deltas(text, {}, settings);
    const bool is_short = text.size() <= kShort;
    n_whole += is_short ? 1 : 0;
    const size_t n_places = is_short ? text.size() : kCutsOfLong;
    for (size_t n = 1; n < n_places; ++n) {
      const size_t cut = is_short ? n : 1 + writer.below(static_cast<uint32_t>(text.size() - 1));
      ASSERT_EQ(deltas(text, {cut}, settings), whole) << "cut at " << cut;
      ++n_cuts;
    }
    std::vector<size_t> bytes;
    for (size_t at = 1; at < text.size(); ++at) bytes.push_back(at);
    ASSERT_EQ(deltas(text, bytes, settings), whole) << "byte by byte";
    for (int n = 0; n < kRandomCuttings; ++n) {
      std::vector<size_t> cuts;
      for (size_t at = 1 + writer.below(9); at < text.size(); at += 1 + writer.below(9)) {
        cuts.push_back(at);
      }
      ASSERT_EQ(deltas(text, cuts, settings), whole);
    }
  }
  std::printf("%d messages, %zu of them cut at every place, %zu cuts in two\n", kMessages, n_whole,
              n_cuts);
  EXPECT_GE(n_whole, static_cast<size_t>(kMessages) / 2);
}

}  // namespace
}  // namespace fathom
