#include "serve/messages_call.h"

#include "serve/messages_input.h"
#include "text/quote.h"

namespace fathom {
namespace {

void read_tools(BodyFields& fields, Translation* to) {
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
    fields.keep(tool.done());
    to->add_tool(std::move(function), place, "input_schema");
  }
}

void read_tool_choice(BodyFields& fields, Translation* to) {
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
}

void read_thinking(BodyFields& fields, Translation* to) {
  if (const Json* thinking = fields.find("thinking")) to->set("thinking", *thinking);
  const Json* config = fields.object("output_config");
  if (config == nullptr) return;
  BodyFields inner(*config, "output_config");
  if (const Json* effort = inner.find("effort")) to->set("reasoning_effort", *effort);
}

}  // namespace

Result<ChatCall> parse_messages_call(std::string_view body) {
  FATHOM_ASSIGN_OR_RETURN(const Json parsed, parse_body(body));
  BodyFields fields(parsed);
  Translation translation;
  translation.name_image_url("source.url");
  translation.rename("stop", "stop_sequences");
  translation.rename("reasoning_effort", "output_config.effort");
  translation.rename("tool_choice.function", "tool_choice");
  FATHOM_RETURN_IF_ERROR(translate_messages(fields, &translation));
  read_thinking(fields, &translation);
  read_tools(fields, &translation);
  read_tool_choice(fields, &translation);
  if (const JsonArray* stop = fields.array("stop_sequences")) {
    translation.set("stop", Json(*stop));
  }
  fields.object("metadata");
  const CommonFields common = read_common(fields);
  ChatCall call = {.max_tokens = fields.integer("max_tokens", 1, INT64_MAX)};
  FATHOM_RETURN_IF_ERROR(fields.done());
  FATHOM_ASSIGN_OR_RETURN(call.request, translation.parse(ToolNames::kPlain));
  apply_common(common, &call);
  if (call.model.starts_with("claude")) call.model.clear();
  return call;
}

}  // namespace fathom
