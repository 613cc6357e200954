#include "serve/messages_call.h"

#include "serve/messages_input.h"
#include "text/quote.h"

namespace fathom {
namespace {

// Which of the tools are strict. The published library offers a strict one as any other, its schema
// printed as it came, and so the conversion is not told of it.
void read_tools(BodyFields& fields, Translation* to, std::vector<bool>* strict) {
  const JsonArray* tools = fields.array("tools");
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string place = "tools[" + std::to_string(i) + "]";
    BodyFields tool((*tools)[i], place);
    std::string type = "custom";
    tool.text("type", type);
    if (type != "custom") tool.refuse("type", "custom, for a tool of the client", quote(type));
    JsonObject function = {{"name", Json(tool.required_text("name"))}};
    const Json* schema = tool.find("input_schema");
    if (schema == nullptr) tool.refuse("input_schema", "a schema", schema);
    if (const Json* text = tool.find("description")) function.push_back({"description", *text});
    if (schema != nullptr) function.push_back({"parameters", *schema});
    bool is_strict = false;
    tool.flag("strict", is_strict);
    strict->push_back(is_strict);
    fields.keep(tool.done());
    to->add_tool(std::move(function), place, "input_schema");
  }
}

void read_tool_choice(BodyFields& fields, Translation* to, bool* any) {
  const Json* value = fields.object("tool_choice");
  if (value == nullptr) return;
  BodyFields choice(*value, "tool_choice");
  const std::string type = choice.required_text("type");
  if (type == "tool") {
    JsonObject function = {{"name", Json(choice.required_text("name"))}};
    to->set("tool_choice", Json(JsonObject{{"type", Json(std::string("function"))},
                                           {"function", Json(std::move(function))}}));
  } else if (type == "none") {
    to->set("tool_choice", Json(type));
  } else if (type != "auto" && type != "any") {
    choice.refuse("type", "one of auto, any, tool, none", quote(type));
  }
  fields.keep(choice.done());
  *any = type == "any";
}

void bind_calls(const std::vector<bool>& strict, bool any, ChatRequest* request) {
  for (size_t i = 0; i < request->tools.size(); ++i) {
    ToolDefinition& tool = request->tools[i];
    tool.strict = strict[i];
    if (!tool.strict) continue;
    tool.schema = tool.parameters;
    tool.schema_path = "tools[" + std::to_string(i) + "].input_schema";
  }
  if (any && !request->tools.empty()) request->tool_choice = ToolChoice::kAny;
}

void read_thinking(BodyFields& fields, Translation* to) {
  if (const Json* thinking = fields.find("thinking")) to->set("thinking", *thinking);
  const Json* config = fields.object("output_config");
  const Json* own = config == nullptr ? nullptr : BodyFields(*config).find("effort");
  const Json* other = fields.find("reasoning_effort");
  if (own != nullptr) to->rename("reasoning_effort", "output_config.effort");
  if (own != nullptr || other != nullptr)
    to->set("reasoning_effort", own != nullptr ? *own : *other);
}

// {"type": "json_schema", "schema": SCHEMA} in `output_config.format`, or in `output_format`, as an
// earlier version of the protocol has it.
void read_format(BodyFields& fields, Translation* to, ChatCall* call) {
  const Json* early = fields.object("output_format");
  const Json* config = fields.find("output_config");
  const Json* format = config == nullptr ? nullptr : config->find("format");
  if (format != nullptr && format->is_null()) format = nullptr;
  if (early != nullptr && format != nullptr) {
    return fields.refuse("output_format", "none beside output_config.format", "one");
  }
  if (early == nullptr && format == nullptr) return;
  if (early != nullptr) {
    call->format_field = "output_format";
    call->schema_field = "output_format.schema";
  }
  to->rename("response_format.json_schema.schema", call->schema_field);
  to->rename("response_format", call->format_field);
  BodyFields inner(early != nullptr ? *early : *format, call->format_field);
  const std::string type = inner.required_text("type");
  if (type != "json_schema") inner.refuse("type", "json_schema", quote(type));
  const Json* schema = inner.find("schema");
  if (schema == nullptr) {
    inner.refuse("schema", "a schema", schema);
  } else {
    to->set("response_format",
            Json(JsonObject{{"type", Json(type)},
                            {"json_schema", Json(JsonObject{{"schema", *schema}})}}));
  }
  fields.keep(inner.done());
}

}  // namespace

Result<ChatCall> parse_messages_call(std::string_view body, int effort) {
  FATHOM_ASSIGN_OR_RETURN(const Json parsed, parse_body(body));
  BodyFields fields(parsed);
  ChatCall call = {.format_field = "output_config.format",
                   .schema_field = "output_config.format.schema"};
  Translation translation;
  translation.name_image_url("source.url");
  translation.rename("tool_choice.function", "tool_choice");
  FATHOM_RETURN_IF_ERROR(translate_messages(fields, &translation));
  read_thinking(fields, &translation);
  read_format(fields, &translation, &call);
  std::vector<bool> strict;
  bool any = false;
  read_tools(fields, &translation, &strict);
  read_tool_choice(fields, &translation, &any);
  if (const JsonArray* stop = fields.array("stop_sequences")) {
    translation.rename("stop", "stop_sequences");
    translation.set("stop", Json(*stop));
  } else if (const Json* other = fields.find("stop")) {
    translation.set("stop", *other);
  }
  fields.object("metadata");
  const CommonFields common = read_common(fields, Protocol::kMessages);
  const MaxTokens limit = read_max_tokens(fields, "max_tokens", 1, INT64_MAX);
  call.max_tokens = limit.own;
  call.other_max_tokens = limit.other;
  const ChatDefaults defaults = {.effort = read_default_effort(fields, effort)};
  FATHOM_RETURN_IF_ERROR(fields.done());
  FATHOM_ASSIGN_OR_RETURN(call.request, translation.parse(defaults));
  bind_calls(strict, any, &call.request);
  apply_common(common, &call);
  if (call.model.starts_with("claude")) call.model.clear();
  return call;
}

}  // namespace fathom
