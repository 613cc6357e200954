// What a parsed request says of its prompt and of the answer that it wants.

#include "text/chat_request.h"

namespace fathom {

std::vector<const ToolDefinition*> offered_tools(const ChatRequest& request) {
  std::vector<const ToolDefinition*> offered;
  if (request.tool_choice == ToolChoice::kNone) return offered;
  for (const ToolDefinition& tool : request.tools) {
    if (request.tool_choice == ToolChoice::kNamed && tool.name != request.tool_choice_name) {
      continue;
    }
    offered.push_back(&tool);
  }
  return offered;
}

bool forces_tool_call(const ChatRequest& request) {
  return !request.tools.empty() && (request.tool_choice == ToolChoice::kRequired ||
                                    request.tool_choice == ToolChoice::kNamed);
}

bool wants_tool_call(const ChatRequest& request) {
  return forces_tool_call(request) ||
         (!request.tools.empty() && request.tool_choice == ToolChoice::kAny);
}

const ChatMessage* continued_prefix(const ChatRequest& request) {
  if (request.messages.empty() || !request.messages.back().prefix) return nullptr;
  return &request.messages.back();
}

std::string content_text(const ChatMessage& message) {
  std::string text;
  const char* separator = "";
  for (const ContentPart& part : message.content) {
    text += separator;
    if (const auto* piece = std::get_if<std::string>(&part)) text += *piece;
    separator = "\n\n";
  }
  return text;
}

}  // namespace fathom
