#include "serve/answer_form.h"

#include "text/grammar_form.h"
#include "text/grammar_regex.h"
#include "text/grammar_schema.h"
#include "text/grammar_tools.h"

namespace fathom {
namespace {

Result<Grammar> structured(const Json& outputs, const GrammarFrame& frame) {
  const std::string where = "structured_outputs";
  const JsonObject* members = outputs.as_object();
  const std::string wanted = ": wanted an object with one of json, regex and grammar, found ";
  if (members == nullptr) return invalid(where + wanted + outputs.kind_name());
  if (members->size() != 1) {
    return invalid(where + wanted + std::to_string(members->size()) + " members");
  }
  const JsonMember& member = members->front();
  const std::string path = where + "." + member.key;
  if (member.key == "json") return schema_grammar(member.value, path, frame);
  if (member.key != "regex" && member.key != "grammar") {
    return invalid(where + wanted + json_quoted(member.key));
  }
  const std::string* text = member.value.as_string();
  if (text == nullptr) {
    return invalid(path + ": wanted a string, found " + member.value.kind_name());
  }
  return member.key == "regex" ? regex_grammar(*text, path, frame)
                               : form_grammar(*text, path, frame);
}

}  // namespace

Result<std::optional<Grammar>> answer_form(const ChatCall& call) {
  const ChatRequest& request = call.request;
  const bool has_outputs = !call.structured_outputs.is_null();
  const std::string field = has_outputs ? "structured_outputs" : call.format_field;
  const std::vector<const ToolDefinition*> tools = offered_tools(request);
  if (!tools.empty() && tools.front()->strict) {
    if (has_outputs) return invalid(field + ": wanted none beside strict tools, found one");
    Result<Grammar> calls = tools_grammar(tools, forces_tool_call(request));
    if (!calls) return calls.error();
    return std::optional<Grammar>(std::move(*calls));
  }
  if (request.response_format == ResponseFormat::kText && !has_outputs) {
    return std::optional<Grammar>();
  }
  if (request.response_format != ResponseFormat::kText && has_outputs) {
    return invalid("structured_outputs: wanted none beside response_format, found one");
  }
  if (forces_tool_call(request)) {
    return invalid(field + ": wanted none beside a forced tool call, found one");
  }
  if (continued_prefix(request) != nullptr) {
    return invalid(field + ": wanted none beside a prefix, found one");
  }
  const GrammarFrame frame = {.thinking = request.thinking, .calls = !tools.empty()};
  Result<Grammar> made = [&]() -> Result<Grammar> {
    if (has_outputs) return structured(call.structured_outputs, frame);
    switch (request.response_format) {
      case ResponseFormat::kJsonSchema:
        return schema_grammar(request.response_schema, call.schema_field, frame);
      case ResponseFormat::kRegex:
        return regex_grammar(request.response_regex, std::string(call.format_field) + ".regex",
                             frame);
      default:
        return object_grammar(frame);
    }
  }();
  if (!made) return made.error();
  return std::optional<Grammar>(std::move(*made));
}

}  // namespace fathom
