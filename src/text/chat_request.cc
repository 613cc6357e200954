#include "text/chat_request.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "text/quote.h"
#include "text/tool_schema.h"

namespace fathom {
namespace {

constexpr size_t kToolNameMax = 128;
constexpr size_t kStopMax = 16;

Error wrong(const std::string& where, const std::string& wanted, const Json* found) {
  std::string seen = "nothing";
  if (found != nullptr) {
    seen = found->as_string() != nullptr ? quote(*found->as_string()) : found->kind_name();
  }
  return invalid(where + ": wanted " + wanted + ", found " + seen);
}

std::string index_text(size_t i) { return "[" + std::to_string(i) + "]"; }

// One JSON object of the request and the name of its place, for messages.
class Fields {
 public:
  static Result<Fields> of(const Json* value, std::string where) {
    if (value == nullptr || value->as_object() == nullptr) {
      return wrong(where.empty() ? "request" : where, "an object", value);
    }
    return Fields(value, std::move(where));
  }

  std::string path(const char* key) const { return where_.empty() ? key : where_ + "." + key; }

  // The member, null if it is absent or null.
  const Json* optional(const char* key) const {
    const Json* value = value_->find(key);
    return value != nullptr && !value->is_null() ? value : nullptr;
  }

  const Json* raw(const char* key) const { return value_->find(key); }

  Result<std::string> string(const char* key) const {
    const Json* value = value_->find(key);
    if (value == nullptr || value->as_string() == nullptr)
      return wrong(path(key), "a string", value);
    return *value->as_string();
  }

  Result<std::string> string_or_empty(const char* key) const {
    if (optional(key) == nullptr) return std::string();
    return string(key);
  }

  Result<bool> flag_or_false(const char* key) const {
    const Json* value = optional(key);
    if (value == nullptr) return false;
    if (value->as_bool() == nullptr) return wrong(path(key), "a boolean", value);
    return *value->as_bool();
  }

 private:
  Fields(const Json* value, std::string where) : value_(value), where_(std::move(where)) {}

  const Json* value_;
  std::string where_;
};

template <typename T>
struct Choice {
  const char* name;
  T value;
};

template <typename T, size_t N>
Result<T> choose(const std::array<Choice<T>, N>& choices, const Json* found,
                 const std::string& where) {
  std::string names;
  for (const Choice<T>& choice : choices) {
    if (found != nullptr && found->as_string() != nullptr && *found->as_string() == choice.name) {
      return choice.value;
    }
    names += (names.empty() ? "" : ", ") + std::string(choice.name);
  }
  return wrong(where, "one of " + names, found);
}

// ---------------------------------------------------------------- content

Result<ImageRef> parse_image(const Fields& part) {
  constexpr std::array<Choice<ImageDetail>, 4> kDetails = {{{"low", ImageDetail::kLow},
                                                            {"high", ImageDetail::kHigh},
                                                            {"original", ImageDetail::kOriginal},
                                                            {"auto", ImageDetail::kAuto}}};
  FATHOM_ASSIGN_OR_RETURN(const Fields image,
                          Fields::of(part.raw("image_url"), part.path("image_url")));
  ImageRef ref;
  FATHOM_ASSIGN_OR_RETURN(ref.url, image.string("url"));
  const std::string_view url = ref.url;
  const bool data = url.starts_with("data:") && url.find(',') != std::string_view::npos;
  if (!data && !url.starts_with("http://") && !url.starts_with("https://")) {
    return wrong(image.path("url"), "an http, https or data URL", image.raw("url"));
  }
  if (const Json* detail = image.optional("detail")) {
    FATHOM_ASSIGN_OR_RETURN(ref.detail, choose(kDetails, detail, image.path("detail")));
  }
  return ref;
}

Result<ContentPart> parse_part(const Json& value, const std::string& where) {
  FATHOM_ASSIGN_OR_RETURN(const Fields part, Fields::of(&value, where));
  FATHOM_ASSIGN_OR_RETURN(const std::string type, part.string("type"));
  if (type == "text") {
    FATHOM_ASSIGN_OR_RETURN(std::string text, part.string("text"));
    return ContentPart(std::move(text));
  }
  if (type == "image_url") {
    FATHOM_ASSIGN_OR_RETURN(ImageRef image, parse_image(part));
    image.path = where;
    return ContentPart(std::move(image));
  }
  return wrong(part.path("type"), "text or image_url", part.raw("type"));
}

Result<std::vector<ContentPart>> parse_content(const Json* value, const std::string& where) {
  std::vector<ContentPart> content;
  if (value != nullptr && value->as_string() != nullptr) {
    content.emplace_back(*value->as_string());
    return content;
  }
  const JsonArray* parts = value != nullptr ? value->as_array() : nullptr;
  if (parts == nullptr) return wrong(where, "a string or an array", value);
  for (size_t i = 0; i < parts->size(); ++i) {
    FATHOM_ASSIGN_OR_RETURN(ContentPart part, parse_part((*parts)[i], where + index_text(i)));
    content.push_back(std::move(part));
  }
  return content;
}

// ---------------------------------------------------------------- messages

Result<std::vector<ToolCall>> parse_calls(const Json* value, const std::string& where) {
  std::vector<ToolCall> calls;
  if (value == nullptr) return calls;
  if (value->as_array() == nullptr) return wrong(where, "an array", value);
  if (value->as_array()->empty()) return invalid(where + ": wanted at least one call, found none");
  for (size_t i = 0; i < value->as_array()->size(); ++i) {
    const std::string place = where + index_text(i);
    FATHOM_ASSIGN_OR_RETURN(const Fields call, Fields::of(&(*value->as_array())[i], place));
    FATHOM_ASSIGN_OR_RETURN(const std::string type, call.string("type"));
    if (type != "function") return wrong(call.path("type"), "function", call.raw("type"));
    FATHOM_ASSIGN_OR_RETURN(const Fields function,
                            Fields::of(call.raw("function"), call.path("function")));
    ToolCall parsed;
    FATHOM_ASSIGN_OR_RETURN(parsed.id, call.string("id"));
    FATHOM_ASSIGN_OR_RETURN(parsed.name, function.string("name"));
    FATHOM_ASSIGN_OR_RETURN(parsed.arguments, function.string("arguments"));
    calls.push_back(std::move(parsed));
  }
  return calls;
}

Result<void> parse_assistant(const Fields& fields, ChatMessage* message) {
  FATHOM_ASSIGN_OR_RETURN(message->reasoning, fields.string_or_empty("reasoning_content"));
  FATHOM_ASSIGN_OR_RETURN(message->prefix, fields.flag_or_false("prefix"));
  FATHOM_ASSIGN_OR_RETURN(message->tool_calls,
                          parse_calls(fields.optional("tool_calls"), fields.path("tool_calls")));
  const Json* content = fields.optional("content");
  if (content == nullptr) {
    if (message->tool_calls.empty()) {
      return invalid(fields.path("content") + ": wanted content or tool_calls, found neither");
    }
    return {};
  }
  FATHOM_ASSIGN_OR_RETURN(message->content, parse_content(content, fields.path("content")));
  for (const ContentPart& part : message->content) {
    if (const auto* image = std::get_if<ImageRef>(&part)) {
      return invalid(image->path + ": wanted text in an assistant message, found an image");
    }
  }
  return {};
}

Result<void> parse_user(const Fields& fields, ChatMessage* message) {
  constexpr std::array<Choice<Task>, 6> kTasks = {{{"action", Task::kAction},
                                                   {"query", Task::kQuery},
                                                   {"authority", Task::kAuthority},
                                                   {"domain", Task::kDomain},
                                                   {"title", Task::kTitle},
                                                   {"read_url", Task::kReadUrl}}};
  FATHOM_ASSIGN_OR_RETURN(message->content,
                          parse_content(fields.raw("content"), fields.path("content")));
  if (const Json* task = fields.optional("task")) {
    FATHOM_ASSIGN_OR_RETURN(message->task, choose(kTasks, task, fields.path("task")));
  }
  return {};
}

Result<ChatMessage> parse_message(const Json& value, const std::string& where) {
  constexpr std::array<Choice<Role>, 5> kRoles = {{{"system", Role::kSystem},
                                                   {"user", Role::kUser},
                                                   {"assistant", Role::kAssistant},
                                                   {"tool", Role::kTool},
                                                   {"latest_reminder", Role::kLatestReminder}}};
  FATHOM_ASSIGN_OR_RETURN(const Fields fields, Fields::of(&value, where));
  ChatMessage message;
  FATHOM_ASSIGN_OR_RETURN(message.role, choose(kRoles, fields.raw("role"), fields.path("role")));
  if (message.role != Role::kUser && fields.optional("task") != nullptr) {
    return invalid(fields.path("task") + ": wanted a task on a user message only, found it on " +
                   quote(*fields.raw("role")->as_string()));
  }
  if (message.role != Role::kTool && message.role != Role::kLatestReminder) {
    FATHOM_RETURN_IF_ERROR(fields.string_or_empty("name"));
  }
  switch (message.role) {
    case Role::kAssistant: {
      FATHOM_RETURN_IF_ERROR(parse_assistant(fields, &message));
      break;
    }
    case Role::kUser: {
      FATHOM_RETURN_IF_ERROR(parse_user(fields, &message));
      break;
    }
    case Role::kLatestReminder: {
      FATHOM_ASSIGN_OR_RETURN(std::string text, fields.string("content"));
      message.content.emplace_back(std::move(text));
      break;
    }
    case Role::kTool: {
      FATHOM_ASSIGN_OR_RETURN(message.tool_call_id, fields.string("tool_call_id"));
      FATHOM_ASSIGN_OR_RETURN(message.content,
                              parse_content(fields.raw("content"), fields.path("content")));
      break;
    }
    case Role::kSystem: {
      FATHOM_ASSIGN_OR_RETURN(message.content,
                              parse_content(fields.raw("content"), fields.path("content")));
      break;
    }
  }
  return message;
}

// Every call has its result, in the tool messages that follow the assistant turn at once, and every
// result its call (spec/chat.md 2, item 5).
Result<void> check_results(const std::vector<ChatMessage>& messages) {
  size_t i = 0;
  while (i < messages.size()) {
    const ChatMessage& message = messages[i];
    const std::string where = "messages" + index_text(i);
    if (message.role == Role::kTool) {
      return invalid(where + ": wanted a result right after the calls it answers, found " +
                     quote(message.tool_call_id) + " without such a call");
    }
    std::set<std::string_view> open;
    for (const ToolCall& call : message.tool_calls) {
      if (open.insert(call.id).second) continue;
      return invalid(where + ".tool_calls: wanted each id once, found " + quote(call.id) +
                     " again");
    }
    ++i;
    while (!open.empty() && i < messages.size() && messages[i].role == Role::kTool &&
           open.erase(messages[i].tool_call_id) == 1) {
      ++i;
    }
    if (!open.empty()) {
      return invalid(where +
                     ".tool_calls: wanted a tool message for each call at once, found "
                     "none for " +
                     quote(*open.begin()));
    }
  }
  return {};
}

Result<void> parse_messages(const Fields& body, ChatRequest* request) {
  const Json* value = body.raw("messages");
  if (value == nullptr || value->as_array() == nullptr) return wrong("messages", "an array", value);
  if (value->as_array()->empty()) {
    return invalid("messages: wanted at least one message, found none");
  }
  for (size_t i = 0; i < value->as_array()->size(); ++i) {
    FATHOM_ASSIGN_OR_RETURN(ChatMessage message,
                            parse_message((*value->as_array())[i], "messages" + index_text(i)));
    request->messages.push_back(std::move(message));
  }
  for (size_t i = 0; i + 1 < request->messages.size(); ++i) {
    if (!request->messages[i].prefix) continue;
    return invalid("messages" + index_text(i) + ".prefix: wanted it on the last message only, " +
                   "found it before message " + std::to_string(i + 1));
  }
  return check_results(request->messages);
}

// ---------------------------------------------------------------- tools

bool is_plain_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

bool is_tool_name(std::string_view name, ToolNames names) {
  if (name.size() > kToolNameMax) return false;
  const size_t colons = names == ToolNames::kPlain ? std::string_view::npos : name.find("::");
  if (colons == std::string_view::npos) return is_plain_name(name);
  return is_plain_name(name.substr(0, colons)) && is_plain_name(name.substr(colons + 2));
}

Result<ToolDefinition> parse_tool(const Json& value, const std::string& where, ToolNames names) {
  FATHOM_ASSIGN_OR_RETURN(const Fields outer, Fields::of(&value, where));
  FATHOM_ASSIGN_OR_RETURN(const std::string type, outer.string("type"));
  if (type != "function") return wrong(outer.path("type"), "function", outer.raw("type"));
  FATHOM_ASSIGN_OR_RETURN(const Fields function,
                          Fields::of(outer.raw("function"), outer.path("function")));
  ToolDefinition tool;
  FATHOM_ASSIGN_OR_RETURN(tool.name, function.string("name"));
  if (!is_tool_name(tool.name, names)) {
    return wrong(function.path("name"), "1 to 128 characters of [a-zA-Z0-9_-]",
                 function.raw("name"));
  }
  FATHOM_ASSIGN_OR_RETURN(tool.description, function.string_or_empty("description"));
  FATHOM_ASSIGN_OR_RETURN(tool.strict, function.flag_or_false("strict"));
  if (const Json* parameters = function.optional("parameters")) tool.parameters = *parameters;
  return tool;
}

Result<void> parse_tools(const Fields& body, ToolNames names, ChatRequest* request) {
  const Json* value = body.optional("tools");
  if (value == nullptr) return {};
  if (value->as_array() == nullptr) return wrong("tools", "an array", value);
  for (size_t i = 0; i < value->as_array()->size(); ++i) {
    FATHOM_ASSIGN_OR_RETURN(ToolDefinition tool,
                            parse_tool((*value->as_array())[i], "tools" + index_text(i), names));
    request->tools.push_back(std::move(tool));
  }
  return {};
}

Result<void> finish_parameters(ToolDefinition* tool, const std::string& where) {
  if (tool->strict) {
    tool->schema = tool->parameters;
    tool->schema_path = where;
    FATHOM_ASSIGN_OR_RETURN(tool->parameters, normalise_strict_schema(tool->parameters, where));
  } else if (tool->parameters.is_null()) {
    tool->parameters = Json(JsonObject{});
  } else {
    FATHOM_RETURN_IF_ERROR(check_parameters_schema(tool->parameters, where));
  }
  return {};
}

// What only matters if the tools may be offered; with the choice "none" the library looks no
// further than the form.
Result<void> finish_tools(ChatRequest* request) {
  if (request->tool_choice == ToolChoice::kNone) return {};
  std::set<std::string_view> names;
  for (size_t i = 0; i < request->tools.size(); ++i) {
    ToolDefinition& tool = request->tools[i];
    const std::string where = "tools" + index_text(i) + ".function";
    if (!names.insert(tool.name).second) {
      return invalid(where + ".name: wanted each name once, found " + quote(tool.name) + " again");
    }
    FATHOM_RETURN_IF_ERROR(finish_parameters(&tool, where + ".parameters"));
  }
  const auto offered = offered_tools(*request);
  for (const ToolDefinition* tool : offered) {
    if (tool->strict == offered.front()->strict) continue;
    return invalid("tools: wanted strict on all tools or on none, found it on some but not on " +
                   quote(tool->strict ? offered.front()->name : tool->name));
  }
  return {};
}

Result<void> parse_tool_choice(const Fields& body, ChatRequest* request) {
  constexpr std::array<Choice<ToolChoice>, 3> kChoices = {{{"auto", ToolChoice::kAuto},
                                                           {"none", ToolChoice::kNone},
                                                           {"required", ToolChoice::kRequired}}};
  const Json* value = body.optional("tool_choice");
  if (value == nullptr) return {};
  if (value->as_object() == nullptr) {
    FATHOM_ASSIGN_OR_RETURN(request->tool_choice, choose(kChoices, value, "tool_choice"));
  } else {
    FATHOM_ASSIGN_OR_RETURN(const Fields choice, Fields::of(value, "tool_choice"));
    FATHOM_ASSIGN_OR_RETURN(const std::string type, choice.string("type"));
    if (type != "function") return wrong(choice.path("type"), "function", choice.raw("type"));
    FATHOM_ASSIGN_OR_RETURN(const Fields function,
                            Fields::of(choice.raw("function"), choice.path("function")));
    FATHOM_ASSIGN_OR_RETURN(request->tool_choice_name, function.string("name"));
    request->tool_choice = ToolChoice::kNamed;
  }
  if (request->tools.empty()) {  // nothing to choose from: the choice has no effect
    request->tool_choice = ToolChoice::kAuto;
    request->tool_choice_name.clear();
  }
  const bool known = std::any_of(
      request->tools.begin(), request->tools.end(),
      [request](const ToolDefinition& tool) { return tool.name == request->tool_choice_name; });
  if (request->tool_choice == ToolChoice::kNamed && !known) {
    return invalid("tool_choice.function.name: wanted one of the tools, found " +
                   quote(request->tool_choice_name));
  }
  return {};
}

// ---------------------------------------------------------------- the other members

Result<void> parse_response_format(const Fields& body, ChatRequest* request) {
  constexpr std::array<Choice<ResponseFormat>, 4> kFormats = {
      {{"text", ResponseFormat::kText},
       {"json_object", ResponseFormat::kJsonObject},
       {"json_schema", ResponseFormat::kJsonSchema},
       {"regex", ResponseFormat::kRegex}}};
  const Json* value = body.optional("response_format");
  if (value == nullptr) return {};
  FATHOM_ASSIGN_OR_RETURN(const Fields format, Fields::of(value, "response_format"));
  const auto offered = offered_tools(*request);
  if (!offered.empty() && offered.front()->strict) {
    return invalid("response_format: wanted none beside strict tools, found one");
  }
  FATHOM_ASSIGN_OR_RETURN(request->response_format,
                          choose(kFormats, format.raw("type"), format.path("type")));
  if (request->response_format == ResponseFormat::kRegex) {
    FATHOM_ASSIGN_OR_RETURN(request->response_regex, format.string("regex"));
  }
  if (request->response_format != ResponseFormat::kJsonSchema) return {};
  FATHOM_ASSIGN_OR_RETURN(const Fields outer,
                          Fields::of(format.raw("json_schema"), format.path("json_schema")));
  FATHOM_RETURN_IF_ERROR(outer.string_or_empty("name"));
  FATHOM_RETURN_IF_ERROR(outer.flag_or_false("strict"));
  const Json* schema = outer.raw("schema");
  if (schema == nullptr) return wrong(outer.path("schema"), "a schema", schema);
  FATHOM_RETURN_IF_ERROR(check_schema(*schema, outer.path("schema")));
  request->response_schema = *schema;
  return {};
}

Result<void> parse_thinking(const Fields& body, ChatRequest* request) {
  constexpr std::array<Choice<bool>, 3> kModes = {
      {{"enabled", true}, {"adaptive", true}, {"disabled", false}}};
  const Json* thinking = body.optional("thinking");
  if (thinking != nullptr) {
    FATHOM_ASSIGN_OR_RETURN(const Fields fields, Fields::of(thinking, "thinking"));
    FATHOM_ASSIGN_OR_RETURN(request->thinking,
                            choose(kModes, fields.raw("type"), fields.path("type")));
    const Json* budget = fields.optional("budget_tokens");
    if (budget != nullptr && budget->as_int64() == nullptr) {
      return wrong(fields.path("budget_tokens"), "an integer", budget);
    }
  }
  const Json* given = body.optional("reasoning_effort");
  if (given == nullptr) return {};
  FATHOM_ASSIGN_OR_RETURN(const int effort, parse_effort(*given, "reasoning_effort"));
  if (effort != 0) request->effort = effort;
  if (thinking == nullptr) request->thinking = effort != 0;  // an explicit `thinking` outranks it
  return {};
}

Result<void> parse_stop(const Fields& body, ChatRequest* request) {
  const Json* value = body.optional("stop");
  if (value == nullptr) return {};
  JsonArray one;
  if (value->as_string() != nullptr) one.push_back(*value);
  const JsonArray* items = value->as_string() != nullptr ? &one : value->as_array();
  if (items == nullptr) return wrong("stop", "a string or an array of strings", value);
  if (items->size() > kStopMax) {
    return invalid("stop: wanted at most " + std::to_string(kStopMax) + " strings, found " +
                   std::to_string(items->size()));
  }
  for (size_t i = 0; i < items->size(); ++i) {
    const std::string* text = (*items)[i].as_string();
    if (text == nullptr || text->empty()) {
      return wrong("stop" + index_text(i), "a string that is not empty", &(*items)[i]);
    }
    if (text->size() > kStopBytesMax) {
      return invalid("stop" + index_text(i) + ": wanted at most " + std::to_string(kStopBytesMax) +
                     " bytes, found " + std::to_string(text->size()));
    }
    request->stop.push_back(*text);
  }
  return {};
}

bool mentions_json(const ChatMessage& message) {
  std::string text = content_text(message);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text.find("json") != std::string::npos;
}

// Refusals that concern two members of the request at once.
Result<void> check_together(const ChatRequest& request) {
  if (request.thinking && forces_tool_call(request)) {
    return invalid(
        "tool_choice: wanted auto or none with thinking, which thinking.type disabled turns off, "
        "found " +
        std::string(request.tool_choice == ToolChoice::kNamed ? "a named tool" : "required"));
  }
  const bool has_calls =
      std::any_of(request.messages.begin(), request.messages.end(),
                  [](const ChatMessage& message) { return !message.tool_calls.empty(); });
  if (continued_prefix(request) != nullptr) {
    const std::string where = "messages" + index_text(request.messages.size() - 1) + ".prefix";
    if (!request.tools.empty() || has_calls) {
      return invalid(where + ": wanted no tools and no tool calls beside a prefix, found some");
    }
    if (request.response_format == ResponseFormat::kJsonObject) {
      return invalid(where + ": wanted no response_format json_object beside a prefix, found it");
    }
  }
  if (request.response_format == ResponseFormat::kJsonObject &&
      std::none_of(request.messages.begin(), request.messages.end(), mentions_json)) {
    return invalid(
        "response_format.type: wanted the word json in some message for json_object, found none");
  }
  return {};
}

}  // namespace

Result<ChatRequest> parse_chat_request(std::string_view text) {
  FATHOM_ASSIGN_OR_RETURN(const Json body, parse_json(text));
  return parse_chat_request(body);
}

Result<int> parse_effort(const Json& value, const std::string& where) {
  constexpr std::array<Choice<int>, 8> kEfforts = {{{"none", 0},
                                                    {"minimal", kEffortLow},
                                                    {"low", kEffortLow},
                                                    {"medium", kEffortHigh},
                                                    {"high", kEffortHigh},
                                                    {"xhigh", kEffortHigh},
                                                    {"max", kEffortMax},
                                                    {"ultra", kEffortMax}}};
  if (!value.is_number()) return choose(kEfforts, &value, where);
  const int64_t* whole = value.as_int64();
  if (whole == nullptr || *whole < 1 || *whole > kEffortMax) {
    return invalid(where + ": wanted a name or an integer from 1 to 100, found " +
                   json_text(value));
  }
  return static_cast<int>(*whole);
}

Result<ChatRequest> parse_chat_request(const Json& value, const ChatDefaults& defaults) {
  FATHOM_ASSIGN_OR_RETURN(const Fields body, Fields::of(&value, ""));
  ChatRequest request;
  request.thinking = defaults.effort > 0;
  if (defaults.effort > 0) request.effort = defaults.effort;
  FATHOM_RETURN_IF_ERROR(parse_thinking(body, &request));
  FATHOM_RETURN_IF_ERROR(parse_messages(body, &request));
  FATHOM_RETURN_IF_ERROR(parse_tools(body, defaults.names, &request));
  FATHOM_RETURN_IF_ERROR(parse_tool_choice(body, &request));
  FATHOM_RETURN_IF_ERROR(finish_tools(&request));
  FATHOM_RETURN_IF_ERROR(parse_response_format(body, &request));
  FATHOM_RETURN_IF_ERROR(parse_stop(body, &request));
  FATHOM_RETURN_IF_ERROR(check_together(request));
  return request;
}

}  // namespace fathom
