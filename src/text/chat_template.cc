#include "text/chat_template.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "text/json_text.h"
#include "text/markers.h"
#include "text/quote.h"

namespace fathom {
namespace {

constexpr std::string_view kBlockSeparator = "\n\n";
constexpr std::string_view kResponseLeadIn =
    "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

std::string_view task_text(Task task) {
  switch (task) {
    case Task::kAction:
      return "<｜action｜>";
    case Task::kQuery:
      return "<｜query｜>";
    case Task::kAuthority:
      return "<｜authority｜>";
    case Task::kDomain:
      return "<｜domain｜>";
    case Task::kTitle:
      return "<｜title｜>";
    case Task::kReadUrl:
      return "<｜read_url｜>";
  }
  return "";
}

// One block of a user turn: a part of a message, or a whole tool result.
struct Block {
  const ChatMessage* message;
  const ContentPart* part;  // null: `message` is a tool result
};

// A message after normalisation: user and tool messages that follow each other are one turn.
struct Turn {
  const ChatMessage* message;  // of a user turn: the first one
  Role role;
  std::vector<Block> blocks;  // user turns only
  std::optional<Task> task;
};

bool is_empty_system(const ChatMessage& message) {
  return message.role == Role::kSystem &&
         std::all_of(message.content.begin(), message.content.end(),
                     [](const ContentPart& part) {
                       const auto* text = std::get_if<std::string>(&part);
                       return text != nullptr && text->empty();
                     }) &&
         message.content.size() <= 1;
}

// Puts the results of a turn into the order of their calls; text blocks keep their places. A result
// of an earlier turn's call cannot stand here (chat_request.cc refuses it).
void reorder_results(const ChatMessage* calls, std::vector<Block>* blocks) {
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = 0; calls != nullptr && i < calls->tool_calls.size(); ++i) {
    places.emplace(calls->tool_calls[i].id, i);
  }
  std::vector<std::pair<size_t, Block>> results;
  for (const Block& block : *blocks) {
    if (block.part != nullptr) continue;
    const auto found = places.find(block.message->tool_call_id);
    results.emplace_back(found == places.end() ? 0 : found->second, block);
  }
  std::stable_sort(results.begin(), results.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  auto next = results.begin();
  for (Block& block : *blocks) {
    if (block.part == nullptr) block = (next++)->second;
  }
}

// spec/chat.md 2, items 2 to 5. Of reminders that follow each other the library writes the first.
std::vector<Turn> normalise(const ChatRequest& request) {
  static const ContentPart empty;  // an empty list of parts is one empty block
  std::vector<Turn> turns;
  for (const ChatMessage& message : request.messages) {
    if (!request.keeps_empty_system && is_empty_system(message)) continue;
    const bool follows_reminder = !turns.empty() && turns.back().role == Role::kLatestReminder;
    if (message.role == Role::kLatestReminder && follows_reminder) continue;
    const bool is_user = message.role == Role::kUser || message.role == Role::kTool;
    if (!is_user) {
      turns.push_back({&message, message.role, {}, {}});
      continue;
    }
    const bool merges =
        !turns.empty() && turns.back().role == Role::kUser && !turns.back().task.has_value();
    if (!merges) turns.push_back({&message, Role::kUser, {}, message.task});
    std::vector<Block>& blocks = turns.back().blocks;
    if (message.role == Role::kTool) blocks.push_back({&message, nullptr});
    if (message.role == Role::kUser) {
      for (const ContentPart& part : message.content) blocks.push_back({&message, &part});
      if (message.content.empty()) blocks.push_back({&message, &empty});
    }
  }
  const ChatMessage* calls = nullptr;
  for (Turn& turn : turns) {
    if (turn.role == Role::kAssistant) calls = turn.message;
    if (turn.role == Role::kUser) reorder_results(calls, &turn.blocks);
  }
  return turns;
}

class Renderer {
 public:
  Renderer(const ChatRequest& request, const ToolsTemplate* tools)
      : request_(request), tools_(tools), offered_(offered_tools(request)) {}

  RenderedPrompt render(bool generation) {
    std::vector<Turn> turns = normalise(request_);
    const ChatMessage empty_system = {.role = Role::kSystem};
    const bool attached = !offered_.empty() || has_response_section();
    if (attached && (turns.empty() || turns.front().role != Role::kSystem)) {
      turns.insert(turns.begin(), {&empty_system, Role::kSystem, {}, {}});
    }

    out_.text.marker(kBosText);
    for (size_t i = 0; i < turns.size(); ++i) {
      if (i == 0) opening(turns[0]);
      const Turn* previous = i > 0 ? &turns[i - 1] : nullptr;
      turn(turns[i], previous, i == 0);
      if (turns[i].task && (i + 1 == turns.size() || turns[i + 1].role == Role::kAssistant ||
                            turns[i + 1].role == Role::kLatestReminder)) {
        task(*turns[i].task);
      }
    }
    if (generation) generation_header(turns);
    return std::move(out_);
  }

 private:
  bool has_response_section() const {
    return request_.response_format == ResponseFormat::kJsonObject ||
           request_.response_format == ResponseFormat::kJsonSchema;
  }

  void opening(const Turn& first) {
    if (request_.thinking || first.role == Role::kSystem) out_.text.marker(kSystemText);
    if (!request_.thinking) return;
    out_.text.plain("Reasoning Effort: " + std::to_string(request_.effort) +
                    " (range 1-100, the higher the value, the more thorough the reasoning)\n\n");
  }

  void turn(const Turn& turn, const Turn* previous, bool first) {
    switch (turn.role) {
      case Role::kSystem:
        if (!first) out_.text.marker(kSystemText);
        parts(turn.message->content);
        if (first) attachments();
        break;
      case Role::kLatestReminder:
        out_.text.marker(kReminderText);
        parts(turn.message->content);
        break;
      case Role::kAssistant:
        assistant(*turn.message, previous);
        break;
      case Role::kUser:
      case Role::kTool:
        user(turn.blocks);
        break;
    }
  }

  void part(const ContentPart& part) {
    if (const auto* text = std::get_if<std::string>(&part)) {
      out_.text.plain(*text);
    } else {
      out_.text.marker(kImageText);
      out_.images.push_back(std::get<ImageRef>(part));
    }
  }

  void parts(const std::vector<ContentPart>& content) {
    std::string_view separator;
    for (const ContentPart& piece : content) {
      out_.text.plain(separator);
      part(piece);
      separator = kBlockSeparator;
    }
  }

  void user(const std::vector<Block>& blocks) {
    out_.text.marker(kUserText);
    std::string_view separator;
    for (const Block& block : blocks) {
      out_.text.plain(separator);
      separator = kBlockSeparator;
      if (block.part != nullptr) {
        part(*block.part);
        continue;
      }
      out_.text.plain("<tool_result>");
      parts(block.message->content);
      out_.text.plain("</tool_result>");
    }
  }

  void attachments() {
    if (!offered_.empty()) {
      out_.text.plain(kBlockSeparator);
      out_.text.append(tools_->head);
      std::string_view separator;
      for (const ToolDefinition* tool : offered_) {
        out_.text.plain(separator);
        out_.text.plain("{\"name\": " + json_quoted(tool->name) +
                        ", \"description\": " + json_quoted(tool->description) +
                        ", \"parameters\": " + json_text(tool->parameters) + "}");
        separator = "\n";
      }
      out_.text.append(tools_->tail);
    }
    if (!has_response_section()) return;
    out_.text.plain(kResponseLeadIn);
    out_.text.plain(request_.response_format == ResponseFormat::kJsonSchema
                        ? json_text(request_.response_schema)
                        : "{\"type\": \"json_object\"}");
  }

  // Reasoning is kept with tools, and in a turn that is continued unless it is the very first
  // (spec/chat.md 4 and 5).
  void assistant(const ChatMessage& message, const Turn* previous) {
    const bool continues = message.prefix && previous != nullptr;
    const bool keeps = request_.thinking && (!offered_.empty() || continues);
    if (previous == nullptr || !previous->task) {
      out_.text.marker(kAssistantText);
      if (keeps) {
        out_.text.marker(kThinkOpenText);
        out_.text.plain(message.reasoning);
      }
      // A prefix without content goes on inside the reasoning.
      const bool open = keeps && message.prefix && content_text(message).empty();
      if (!open) out_.text.marker(kThinkCloseText);
    }
    parts(message.content);
    if (!message.tool_calls.empty()) calls(message.tool_calls);
    if (!message.prefix) out_.text.marker(kEosText);
  }

  void tag(std::string_view open, std::string_view name, std::string_view rest) {
    out_.text.plain(open);
    out_.text.marker(kDsmlText);
    out_.text.plain(name);
    out_.text.plain(rest);
  }

  void calls(const std::vector<ToolCall>& calls) {
    out_.text.plain(kBlockSeparator);
    tag("<", kCallsTag, ">\n");
    for (const ToolCall& call : calls) {
      tag("<", kInvokeTag, " name=\"" + call.name + "\">\n");
      arguments(call.arguments);
      tag("\n</", kInvokeTag, ">\n");
    }
    tag("</", kCallsTag, ">");
  }

  void arguments(const std::string& text) {
    const Result<Json> parsed = parse_json(text);
    const JsonObject* members = parsed ? parsed->as_object() : nullptr;
    const JsonObject whole =
        members != nullptr ? JsonObject{} : JsonObject{{"arguments", Json(text)}};
    std::string_view separator;
    for (const JsonMember& member : members != nullptr ? *members : whole) {
      const std::string* string = member.value.as_string();
      out_.text.plain(separator);
      tag("<", kParameterTag, " name=\"" + member.key + "\" string=\"");
      out_.text.plain(string != nullptr ? "true\">" : "false\">");
      out_.text.plain(string != nullptr ? *string : json_text(member.value));
      tag("</", kParameterTag, ">");
      separator = "\n";
    }
  }

  void task(Task task) {
    if (task == Task::kAction) header();
    out_.text.marker(task_text(task));
  }

  void header() {
    out_.text.marker(kAssistantText);
    out_.text.marker(request_.thinking ? kThinkOpenText : kThinkCloseText);
  }

  // The header of the turn to be generated. A continued prefix has its header already; a task, and
  // the answer to a task, is followed by none.
  void generation_header(const std::vector<Turn>& turns) {
    if (!turns.empty()) {
      const Turn& last = turns.back();
      const bool answers_task = last.role == Role::kAssistant && turns.size() > 1 &&
                                turns[turns.size() - 2].task.has_value();
      if (last.task || last.message->prefix || answers_task) return;
    }
    header();
    if (!forces_tool_call(request_)) return;
    out_.text.plain(kBlockSeparator);
    tag("<", kCallsTag, ">\n");
  }

  const ChatRequest& request_;
  const ToolsTemplate* tools_;
  std::vector<const ToolDefinition*> offered_;
  RenderedPrompt out_;
};

}  // namespace

Result<ChatTemplate> ChatTemplate::load(const std::string& model_dir,
                                        const std::string& model_type) {
  if (model_type != "deepseek_v41") {
    return invalid("model_type: wanted \"deepseek_v41\", found " + quote(model_type));
  }
  auto tools = load_tools_template(model_dir);
  if (tools) return ChatTemplate(std::move(*tools));
  if (tools.error().code == ErrorCode::kNotFound) return ChatTemplate();
  return tools.error();
}

Result<RenderedPrompt> ChatTemplate::render(const ChatRequest& request, bool generation) const {
  FATHOM_CHECK(!request.messages.empty());
  if (!tools_ && !offered_tools(request).empty()) {
    return not_found(
        "tools: wanted a model with a tools text (encoding/tools_template.txt or "
        "encoding/encoding.py), found none");
  }
  return Renderer(request, tools_ ? &*tools_ : nullptr).render(generation);
}

}  // namespace fathom
