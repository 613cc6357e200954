#include "train/corpus/synth_text_dialogue.h"

#include <cctype>

#include "base/check.h"
#include "text/tools_template.h"
#include "train/corpus/synth_text_turns.h"

namespace fathom::train {
namespace {

// The literals of spec/chat.md 1, in the released spelling.
constexpr const char* kBos = "<｜begin▁of▁sentence｜>";
constexpr const char* kEos = "<｜end▁of▁sentence｜>";
constexpr const char* kSystem = "<｜System｜>";
constexpr const char* kUser = "<｜User｜>";
constexpr const char* kAssistant = "<｜Assistant｜>";
constexpr const char* kThink = "<think>";
constexpr const char* kThinkEnd = "</think>";

class Renderer {
 public:
  void marker(const std::string& text, bool learned = false) { add({text, true, learned}); }
  void text(const std::string& text, bool learned = false) { add({text, false, learned}); }

  std::vector<DialoguePiece> take() { return std::move(pieces_); }

 private:
  void add(DialoguePiece piece) {
    if (!piece.text.empty()) pieces_.push_back(std::move(piece));
  }
  std::vector<DialoguePiece> pieces_;
};

std::string effort_line(int64_t effort) {
  return "Reasoning Effort: " + std::to_string(effort) +
         " (range 1-100, the higher the value, the more thorough the reasoning)\n\n";
}

// The calls block. The marker strings are learned: the model writes them itself.
void render_call(Renderer& out, const TemplateCall& call) {
  const auto tag = [&](const char* open) {
    out.text(open, true);
    out.marker("｜DSML｜", true);
  };
  out.text("\n\n", true);
  tag("<");
  out.text(" calls>\n", true);
  tag("<");
  out.text(" invoke name=\"" + call.tool + "\">\n", true);
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const ToolArgument& argument = call.arguments[i];
    tag("<");
    out.text(" parameter name=\"" + argument.name + "\" string=\"" +
                 (argument.is_string ? "true" : "false") + "\">" + argument.value,
             true);
    tag("</");
    out.text(" parameter>\n", true);
  }
  if (call.arguments.empty()) out.text("\n", true);
  tag("</");
  out.text(" invoke>\n", true);
  tag("</");
  out.text(" calls>", true);
}

void render_reply(Renderer& out, const Turn& turn, bool keep_reasoning) {
  out.marker(kAssistant);
  if (keep_reasoning) {
    out.marker(kThink);
    out.text(turn.reasoning, true);
    out.marker(kThinkEnd, true);
  } else {
    out.marker(kThinkEnd);
  }
  if (turn.call) {
    render_call(out, *turn.call);
    out.marker(kEos, true);
    out.marker(kUser);
    out.text("<tool_result>" + turn.tool_result + "</tool_result>");
    out.marker(kAssistant);
    out.marker(keep_reasoning ? kThink : kThinkEnd);
    if (keep_reasoning) {
      out.text(turn.result_reasoning, true);
      out.marker(kThinkEnd, true);
    }
  }
  out.text(turn.reply, true);
  out.marker(kEos, true);
}

void render_marked(Renderer& out, const MarkedText& marked) {
  size_t at = 0;
  for (const ByteRange& range : marked.markers) {
    out.text(marked.text.substr(at, range.begin - at));
    out.marker(marked.text.substr(range.begin, range.end - range.begin));
    at = range.end;
  }
  out.text(marked.text.substr(at));
}

void render_tools(Renderer& out, const std::vector<std::string>& schemas) {
  const auto tools = parse_tools_template(small_model_tools_template());
  FATHOM_CHECK(tools.has_value());
  out.text("\n\n");
  render_marked(out, tools->head);
  for (size_t i = 0; i < schemas.size(); ++i) out.text((i > 0 ? "\n" : "") + schemas[i]);
  render_marked(out, tools->tail);
}

std::vector<DialoguePiece> render(const Conversation& conversation, bool thinking, int64_t effort) {
  Renderer out;
  out.marker(kBos);
  const bool tools = !conversation.schemas.empty();
  if (thinking || tools || !conversation.system.empty()) out.marker(kSystem);
  if (thinking) out.text(effort_line(effort));
  out.text(conversation.system);
  if (tools) render_tools(out, conversation.schemas);
  for (size_t i = 0; i < conversation.turns.size(); ++i) {
    const bool last = i + 1 == conversation.turns.size();
    out.marker(kUser);
    out.text(conversation.turns[i].user);
    render_reply(out, conversation.turns[i], thinking && (tools || last));
  }
  return out.take();
}

bool is_term(std::string_view term) {
  if (term.size() < 3 || term.size() > 40) return false;
  if (std::isupper(static_cast<unsigned char>(term[0])) == 0) return false;
  for (std::string_view stop :
       {"This",       "That",     "It",      "There",     "Here",         "The ",  "Each",
        "If",         "What",     "Which",   "Below",     "Another",      "One",   "These",
        "An example", "Note",     "Example", "When",      "Where",        "For",   "In ",
        "As ",        "At ",      "To ",     "On ",       "By ",          "Its",   "His",
        "He",         "She",      "We",      "You",       "They",         "But",   "And",
        "Or",         "So",       "All",     "Also",      "Since",        "While", "Because",
        "Returns",    "Returned", "Usually", "Currently", "Alternatively"}) {
    if (term.substr(0, stop.size()) == stop) return false;
  }
  for (char c : term) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != ' ' && c != '-' && c != '_') {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<Definition> find_definitions(std::string_view text) {
  std::vector<Definition> found;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) end = text.size();
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    for (std::string_view verb : {" is a ", " is an "}) {
      const size_t at = line.substr(0, 60).find(verb);
      if (at == std::string_view::npos || !is_term(line.substr(0, at))) continue;
      const size_t stop = line.find(". ", at);
      const size_t length = stop == std::string_view::npos ? line.size() : stop + 1;
      const std::string_view sentence = line.substr(0, length);
      if (sentence.size() < at + 30 || sentence.size() > 200 || sentence.back() != '.') continue;
      found.push_back({std::string(line.substr(0, at)), std::string(sentence)});
      break;
    }
  }
  return found;
}

std::string small_model_tools_template() {
  return "## Tools\n\n"
         "You can call tools. To call, write a block of this shape:\n\n"
         "<{dsml_token}{tc_block_name}>\n"
         "<{dsml_token}{tool_call_tag_name} name=\"$TOOL_NAME\">\n"
         "<{dsml_token}{tool_parameter_tag_name} name=\"$PARAMETER_NAME\" "
         "string=\"true|false\">$PARAMETER_VALUE</{dsml_token}{tool_parameter_tag_name}>\n"
         "...\n"
         "</{dsml_token}{tool_call_tag_name}>\n"
         "<{dsml_token}{tool_call_tag_name} name=\"$TOOL_NAME2\">\n"
         "...\n"
         "</{dsml_token}{tool_call_tag_name}>\n"
         "</{dsml_token}{tc_block_name}>\n\n"
         "Strings are written as they are with string=\"true\", all else as JSON with "
         "string=\"false\".\n\n"
         "### Available Tool Schemas\n\n"
         "{tool_schemas}\n\n"
         "Use these names and parameters only.\n";
}

DialogueGenerator::DialogueGenerator(std::vector<Definition> definitions, RecallSplit split)
    : definitions_(std::move(definitions)), split_(split) {}

DialogueGenerator::Draft DialogueGenerator::draft(uint64_t seed) const {
  static const std::vector<int> efforts{10, 25, 50, 50, 75, 75, 75, 90, 100};
  SynthRng rng(seed * 2 + (split_ == RecallSplit::kTrain ? 1 : 0));
  Draft draft;
  draft.conversation = draw_conversation(rng, split_, definitions_);
  draft.thinking = rng.chance(draft.conversation.schemas.empty() ? 40 : 60);
  draft.effort = rng.pick(efforts);
  return draft;
}

std::vector<DialoguePiece> DialogueGenerator::dialogue(uint64_t seed) const {
  const Draft drawn = draft(seed);
  return render(drawn.conversation, drawn.thinking, drawn.effort);
}

TokenRow encode_dialogue(const Tokenizer& tokenizer, const std::vector<DialoguePiece>& pieces) {
  // Neighbouring pieces are encoded together, as a served prompt is: only markers cut the text.
  TokenRow row;
  std::string text;
  std::vector<ByteRange> markers;
  std::vector<size_t> learned_until;  // alternating borders: not learned, learned, ...
  bool learned = false;
  for (const DialoguePiece& piece : pieces) {
    if (piece.learned != learned) {
      learned_until.push_back(text.size());
      learned = piece.learned;
    }
    if (piece.marker) markers.push_back({text.size(), text.size() + piece.text.size()});
    text += piece.text;
  }
  learned_until.push_back(text.size());
  row.ids = *tokenizer.encode(text, markers);
  size_t at = 0, border = 0;
  for (TokenId id : row.ids) {
    while (border + 1 < learned_until.size() && at >= learned_until[border]) ++border;
    row.weights.push_back(border % 2 == 1 ? kReplyWeight : 0);
    at += tokenizer.token_bytes(id).size();
  }
  return row;
}

}  // namespace fathom::train
