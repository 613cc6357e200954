#pragma once

// A chat request as a typed value: an OpenAI-style JSON body (Chat Completions form) after every
// check of spec/chat.md sections 2 to 4. JSON ends here.
//
// A refusal is ErrorCode::kInvalid, HTTP status 400, and one line that names the field, such as
//   messages[2].content: wanted a string or an array, found a number
// Where the published server library and the reference differ, the library is followed. Two inputs
// are accepted beyond it: integer efforts 1 to 100, and `task` on a user message.
//
// Members of the body that stand for sampling or transport (temperature, stream ...) are ignored.
// Thread rule: values; no shared state.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/json_text.h"

namespace fathom {

enum class Role : uint8_t { kSystem, kUser, kAssistant, kTool, kLatestReminder };

// The classification and rewriting heads that stand after a user message (spec/chat.md 6).
enum class Task : uint8_t { kAction, kQuery, kAuthority, kDomain, kTitle, kReadUrl };

enum class ImageDetail : uint8_t { kLow, kHigh, kOriginal, kAuto };

// A picture as the request names it; nothing has been fetched or decoded.
struct ImageRef {
  std::string url;  // http://, https:// or data:...;base64,...
  ImageDetail detail = ImageDetail::kHigh;
  std::string path;  // where it stands in the request, for messages: "messages[0].content[1]"
};

// One block of a message. Blocks are joined with two line feeds.
using ContentPart = std::variant<std::string, ImageRef>;

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text as it came, which need not be the text of an object
};

struct ChatMessage {
  Role role = Role::kUser;
  std::vector<ContentPart> content;
  std::string reasoning;             // assistant
  std::vector<ToolCall> tool_calls;  // assistant
  std::string tool_call_id;          // tool
  bool prefix = false;               // assistant, last message: it is to be continued
  std::optional<Task> task;          // user
};

struct ToolDefinition {
  std::string name;
  std::string description;  // "" if absent
  Json parameters;          // a schema, normalised if strict; {} if absent. With the tool choice
                            // "none" as it came, unchecked
  bool strict = false;
  Json schema;              // strict: the parameters as they came, which bind the arguments
  std::string schema_path;  // where they stand in the request, for messages
};

// kAny asks for a call as kRequired does, but the prompt does not open the block of calls: it is a
// choice of Messages, and no body of Chat Completions has it.
enum class ToolChoice : uint8_t { kAuto, kNone, kRequired, kNamed, kAny };

enum class ResponseFormat : uint8_t { kText, kJsonObject, kJsonSchema, kRegex };

inline constexpr int kEffortLow = 50;
inline constexpr int kEffortHigh = 75;
inline constexpr int kEffortMax = 100;

struct ChatRequest {
  std::vector<ChatMessage> messages;
  std::vector<ToolDefinition> tools;
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_choice_name;  // kNamed: one of `tools`
  ResponseFormat response_format = ResponseFormat::kText;
  Json response_schema;             // kJsonSchema
  std::string response_regex;       // kRegex
  bool keeps_empty_system = false;  // Messages and Responses do; Chat Completions leaves them out
  bool thinking = true;
  int effort = kEffortHigh;       // 1 to 100, used only with thinking
  std::vector<std::string> stop;  // none is empty or longer than kStopBytesMax
};

// An answer is held back by the length of the longest stop text.
inline constexpr size_t kStopBytesMax = 1024;

// What the name of a tool may be: 1 to 128 characters of [a-zA-Z0-9_-], or two such names around
// "::", as Responses has them (spec/chat.md 2, item 6).
enum class ToolNames : uint8_t { kPlain, kNamespaced };

// What holds where a body says nothing.
struct ChatDefaults {
  ToolNames names = ToolNames::kPlain;
  int effort = kEffortHigh;  // 1 to 100; 0: without thinking
};

Result<ChatRequest> parse_chat_request(std::string_view body);
Result<ChatRequest> parse_chat_request(const Json& body, const ChatDefaults& defaults = {});

// An effort as a body names it, by a name or as a number from 1 to 100; 0 stands for "none".
// `where` begins messages.
Result<int> parse_effort(const Json& value, const std::string& where);

// The tools that the prompt offers: none for kNone, only the named one for kNamed.
std::vector<const ToolDefinition*> offered_tools(const ChatRequest& request);

// Whether the prompt opens a calls block that the answer continues (kRequired and kNamed).
bool forces_tool_call(const ChatRequest& request);

// Whether an answer without a call is none (kRequired, kNamed and kAny).
bool wants_tool_call(const ChatRequest& request);

// The last message if it is an assistant turn to be continued, otherwise null.
const ChatMessage* continued_prefix(const ChatRequest& request);

// The blocks of a message joined to one text; an image counts as empty.
std::string content_text(const ChatMessage& message);

}  // namespace fathom
