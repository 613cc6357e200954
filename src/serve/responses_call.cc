#include "serve/responses_call.h"

#include "serve/json_shapes.h"
#include "serve/responses_input.h"
#include "text/quote.h"
#include "text/tool_schema.h"

namespace fathom {
namespace {

namespace json = boost::json;

// The one custom tool that models were taught: its input is a patch.
constexpr const char* kPatchTool = "apply_patch";

json::value member_or_null(const Json& object, const char* name) {
  const Json* found = object.find(name);
  return found == nullptr ? json::value() : boost_json(*found);
}

// The object with these members of the request's, null where absent.
json::object echo_of(const Json& object, std::initializer_list<const char*> names) {
  json::object out;
  for (const char* name : names) out[name] = member_or_null(object, name);
  return out;
}

class ToolsReader {
 public:
  ToolsReader(Translation* to, ResponsesCall* call) : to_(to), call_(call) {}

  Result<json::array> read(const JsonArray& tools) {
    json::array echo;
    for (size_t i = 0; i < tools.size(); ++i) {
      const std::string place = "tools[" + std::to_string(i) + "]";
      BodyFields fields(tools[i], place);
      const std::string type = fields.required_text("type");
      FATHOM_RETURN_IF_ERROR(fields.done());
      if (type == "function") {
        echo.push_back(function(tools[i], fields, {}));
      } else if (type == "namespace") {
        echo.push_back(space(tools[i], fields));
      } else if (type == "custom") {
        echo.push_back(custom(tools[i], fields));
      } else if (type.starts_with("web_search")) {  // never offered: nothing here searches
        json::object shown = echo_of(tools[i], {"search_context_size", "user_location"});
        shown["type"] = type;
        echo.push_back(std::move(shown));
      }
      FATHOM_RETURN_IF_ERROR(fields.done());
    }
    return echo;
  }

 private:
  struct Space {
    std::string name;
    std::string description;
  };

  json::object function(const Json& tool, BodyFields& fields, const std::optional<Space>& space) {
    const std::string own = fields.required_text("name");
    std::string name = own;
    std::string description;
    fields.text("description", description);
    if (space) {
      name = space->name + "::" + own;
      call_->namespaces[name] = {space->name, own};
      if (!space->description.empty()) description = space->description + "\n" + description;
    }
    JsonObject function = {{"name", Json(name)}, {"description", Json(description)}};
    if (const Json* schema = fields.find("parameters")) function.push_back({"parameters", *schema});
    if (const Json* strict = fields.find("strict")) function.push_back({"strict", *strict});
    to_->add_tool(std::move(function), fields.where(), "parameters");
    json::object echo = {{"type", "function"}, {"name", own}};
    for (const char* member : {"description", "parameters", "strict"}) {
      echo[member] = member_or_null(tool, member);
    }
    return echo;
  }

  json::object space(const Json& tool, BodyFields& fields) {
    Space space = {.name = fields.required_text("name"), .description = {}};
    fields.text("description", space.description);
    json::array tools;
    const JsonArray* inner = fields.array("tools");
    if (inner == nullptr) fields.refuse("tools", "an array", "nothing");
    for (size_t i = 0; inner != nullptr && i < inner->size(); ++i) {
      const std::string place = fields.place("tools") + "[" + std::to_string(i) + "]";
      BodyFields one((*inner)[i], place);
      const std::string type = one.required_text("type");
      if (type != "function") one.refuse("type", "function in a namespace", quote(type));
      tools.push_back(function((*inner)[i], one, space));
      fields.keep(one.done());
    }
    return {{"type", "namespace"},
            {"name", space.name},
            {"description", member_or_null(tool, "description")},
            {"tools", std::move(tools)}};
  }

  // A function with one text, its input; a grammar that comes with it goes into the description.
  json::object custom(const Json& tool, BodyFields& fields) {
    const std::string name = fields.required_text("name");
    if (name != kPatchTool) fields.refuse("name", kPatchTool, quote(name));
    std::string description;
    fields.text("description", description);
    const Json* format = tool.find("format");
    const Json* grammar = format == nullptr ? nullptr : format->find("definition");
    if (grammar != nullptr && grammar->as_string() != nullptr) {
      description += "\n" + *grammar->as_string();
    }
    const auto text = [](const char* value) { return Json(std::string(value)); };
    JsonObject input = {{"type", text("string")}};
    JsonObject schema = {{"type", text("object")},
                         {"properties", Json(JsonObject{{"input", Json(std::move(input))}})},
                         {"required", Json(JsonArray{text("input")})}};
    to_->add_tool(JsonObject{{"name", Json(name)},
                             {"description", Json(description)},
                             {"parameters", Json(std::move(schema))}},
                  fields.where(), "format");
    call_->custom.insert(name);
    return {{"type", "custom"}, {"name", name}};
  }

  Translation* to_;
  ResponsesCall* call_;
};

void read_tool_choice(BodyFields& fields, Translation* to, json::object* echo) {
  const Json* value = fields.find("tool_choice");
  (*echo)["tool_choice"] = value == nullptr ? json::value("auto") : boost_json(*value);
  if (value == nullptr) return;
  if (value->as_object() == nullptr) return to->set("tool_choice", *value);
  BodyFields choice(*value, "tool_choice");
  const std::string type = choice.required_text("type");
  if (type == "function" || type == "custom") {
    JsonObject function = {{"name", Json(choice.required_text("name"))}};
    to->set("tool_choice", Json(JsonObject{{"type", Json(std::string("function"))},
                                           {"function", Json(std::move(function))}}));
  } else if (!type.starts_with("web_search")) {
    choice.refuse("type", "function or custom", quote(type));
  }
  fields.keep(choice.done());
}

void read_format(BodyFields& text, const Json& format, Translation* to, json::object* echo) {
  BodyFields fields(format, "text.format");
  const std::string type = fields.required_text("type");
  (*echo)["type"] = type;
  if (type == "json_schema") {
    const std::string name = fields.required_text("name");
    bool strict = false;
    fields.flag("strict", strict);
    const Json* schema = fields.find("schema");
    if (schema == nullptr) {
      fields.refuse("schema", "a schema", schema);
    } else {
      if (strict) {
        const auto normal = normalise_strict_schema(*schema, "text.format.schema");
        if (!normal) fields.keep(normal.error());
      }
      JsonObject inner = {{"name", Json(name)}, {"schema", *schema}};
      to->set("response_format",
              Json(JsonObject{{"type", Json(type)}, {"json_schema", Json(std::move(inner))}}));
    }
    for (const char* member : {"name", "schema", "description", "strict"}) {
      (*echo)[member] = member_or_null(format, member);
    }
  } else if (type == "json_object") {
    to->set("response_format", Json(JsonObject{{"type", Json(type)}}));
  } else if (type != "text") {
    fields.refuse("type", "one of text, json_schema, json_object", quote(type));
  }
  text.keep(fields.done());
}

json::object read_text(BodyFields& fields, Translation* to) {
  json::object echo = {{"format", {{"type", "text"}}}, {"verbosity", nullptr}};
  const Json* value = fields.object("text");
  if (value == nullptr) return echo;
  BodyFields text(*value, "text");
  if (const Json* format = text.object("format")) {
    json::object shown;
    read_format(text, *format, to, &shown);
    echo["format"] = std::move(shown);
  }
  echo["verbosity"] = member_or_null(*value, "verbosity");
  fields.keep(text.done());
  return echo;
}

json::object read_reasoning(BodyFields& fields, Translation* to) {
  json::object echo = {{"effort", nullptr}, {"summary", nullptr}};
  if (const Json* thinking = fields.find("thinking")) to->set("thinking", *thinking);
  const Json* value = fields.object("reasoning");
  const Json* own = value == nullptr ? nullptr : BodyFields(*value).find("effort");
  const Json* other = fields.find("reasoning_effort");
  if (own != nullptr) to->rename("reasoning_effort", "reasoning.effort");
  if (own != nullptr || other != nullptr)
    to->set("reasoning_effort", own != nullptr ? *own : *other);
  if (value == nullptr) return echo;
  BodyFields inner(*value, "reasoning");
  std::string summary = "auto";
  inner.text("summary", summary);
  if (summary != "auto" && summary != "concise" && summary != "detailed") {
    inner.refuse("summary", "one of auto, concise, detailed", quote(summary));
  }
  fields.keep(inner.done());
  return echo_of(*value, {"effort", "summary"});
}

// What no request changes: nothing is stored, cut or moderated.
void add_constants(json::object* echo) {
  for (const char* name :
       {"completed_at", "content_filters", "error", "incomplete_details", "max_tool_calls",
        "moderation", "previous_response_id", "prompt_cache_key", "prompt_cache_retention",
        "safety_identifier", "usage"}) {
    (*echo)[name] = nullptr;
  }
  (*echo)["background"] = false;
  (*echo)["frequency_penalty"] = 0.0;
  (*echo)["presence_penalty"] = 0.0;
  (*echo)["parallel_tool_calls"] = true;
  (*echo)["service_tier"] = "default";
  (*echo)["store"] = false;
  (*echo)["truncation"] = "disabled";
  (*echo)["metadata"] = json::object();
}

void name_fields(Translation* translation) {
  translation->name_image_url("image_url");
  translation->rename("tool_choice.function", "tool_choice");
  translation->rename("response_format.json_schema", "text.format");
  translation->rename("response_format", "text.format");
}

}  // namespace

Result<ResponsesCall> parse_responses_call(std::string_view body, int effort) {
  FATHOM_ASSIGN_OR_RETURN(const Json parsed, parse_body(body));
  BodyFields fields(parsed);
  ResponsesCall call;
  ChatCall& chat = call.chat;
  chat.prompt_field = "input";
  chat.max_tokens_field = "max_output_tokens";
  chat.format_field = "text.format";
  chat.schema_field = "text.format.schema";
  Translation translation;
  name_fields(&translation);
  std::string instructions;
  fields.text("instructions", instructions);
  FATHOM_RETURN_IF_ERROR(fields.done());
  FATHOM_RETURN_IF_ERROR(translate_input(instructions, fields.find("input"), &translation));
  json::object& echo = call.echo;
  add_constants(&echo);
  echo["reasoning"] = read_reasoning(fields, &translation);
  echo["tools"] = json::array();
  if (const JsonArray* tools = fields.array("tools")) {
    FATHOM_ASSIGN_OR_RETURN(json::array shown, ToolsReader(&translation, &call).read(*tools));
    echo["tools"] = std::move(shown);
  }
  read_tool_choice(fields, &translation, &echo);
  echo["text"] = read_text(fields, &translation);
  std::string user;
  fields.text("user", user);
  for (const char* name : {"instructions", "max_output_tokens", "user"}) {
    echo[name] = member_or_null(parsed, name);
  }
  if (const Json* stop = fields.find("stop")) translation.set("stop", *stop);
  const CommonFields common = read_common(fields, Protocol::kResponses);
  echo["temperature"] = common.sampling.temperature;
  echo["top_p"] = common.sampling.top_p;
  const MaxTokens limit = read_max_tokens(fields, "max_output_tokens", 1, kMaxTokensMax);
  chat.max_tokens = limit.own;
  chat.other_max_tokens = limit.other;
  const ChatDefaults defaults = {.names = ToolNames::kNamespaced,
                                 .effort = read_default_effort(fields, effort)};
  chat.top_logprobs = fields.integer("top_logprobs", 0, kTopLogprobsMax).value_or(0);
  chat.logprobs = chat.top_logprobs > 0;
  echo["top_logprobs"] = chat.top_logprobs;
  FATHOM_RETURN_IF_ERROR(fields.done());
  FATHOM_ASSIGN_OR_RETURN(chat.request, translation.parse(defaults));
  apply_common(common, &chat);
  return call;
}

}  // namespace fathom
