#include "serve/answer_form.h"

#include <algorithm>

#include "text/grammar_builder.h"
#include "text/grammar_form.h"
#include "text/grammar_machine.h"
#include "text/grammar_regex.h"
#include "text/grammar_schema.h"
#include "text/grammar_tools.h"

namespace fathom {
namespace {

Result<Grammar> one_of(const Json& choices, const std::string& path, const GrammarFrame& frame) {
  const JsonArray* items = choices.as_array();
  if (items == nullptr || items->empty()) {
    return invalid(path + ": wanted an array of at least one string, found " +
                   (items == nullptr ? choices.kind_name() : "none"));
  }
  std::vector<std::string> texts;
  for (const Json& item : *items) {
    if (item.as_string() == nullptr) {
      return invalid(path + "[" + std::to_string(texts.size()) + "]: wanted a string, found " +
                     item.kind_name());
    }
    texts.push_back(*item.as_string());
  }
  GrammarBuilder builder;
  const GrammarBuilder::Expr root = builder.one_of(std::move(texts));
  return builder.finish(root, frame, path);
}

Result<Grammar> structured(const Json& outputs, const GrammarFrame& frame) {
  const std::string where = "structured_outputs";
  const JsonObject* members = outputs.as_object();
  const std::string wanted =
      ": wanted an object with one of json, regex, choice and grammar, found ";
  if (members == nullptr) return invalid(where + wanted + outputs.kind_name());
  if (members->size() != 1) {
    return invalid(where + wanted + std::to_string(members->size()) + " members");
  }
  const JsonMember& member = members->front();
  const std::string path = where + "." + member.key;
  if (member.key == "json") return schema_grammar(member.value, path, frame);
  if (member.key == "choice") return one_of(member.value, path, frame);
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

// Calls of strict tools, and calls that must come: without a grammar the model may name a tool that
// it was never offered.
bool binds_calls(const ChatRequest& request, const std::vector<const ToolDefinition*>& tools) {
  return wants_tool_call(request) ||
         std::ranges::any_of(tools, [](const ToolDefinition* tool) { return tool->strict; });
}

BeforeCalls before_calls(const ChatRequest& request) {
  if (forces_tool_call(request)) return BeforeCalls::kOpening;
  if (!wants_tool_call(request)) return BeforeCalls::kAnswer;
  return request.thinking ? BeforeCalls::kText : BeforeCalls::kFeeds;
}

Result<std::optional<Grammar>> form_of(const ChatCall& call) {
  const ChatRequest& request = call.request;
  const bool has_outputs = !call.extra.structured_outputs.is_null();
  const bool has_format = request.response_format != ResponseFormat::kText;
  const std::string field = has_outputs ? "structured_outputs" : call.format_field;
  const std::vector<const ToolDefinition*> tools = offered_tools(request);
  if (binds_calls(request, tools)) {
    if (has_outputs || has_format) {
      return invalid(field + ": wanted none beside " +
                     (wants_tool_call(request) ? "a forced tool call" : "strict tools") +
                     ", found one");
    }
    Result<Grammar> calls = tools_grammar(tools, before_calls(request));
    if (!calls) return calls.error();
    return std::optional<Grammar>(std::move(*calls));
  }
  if (!has_format && !has_outputs) return std::optional<Grammar>();
  if (has_format && has_outputs) {
    return invalid(std::string("structured_outputs: wanted none beside ") + call.format_field +
                   ", found one");
  }
  if (continued_prefix(request) != nullptr) {
    return invalid(field + ": wanted none beside a prefix, found one");
  }
  const GrammarFrame frame = {.thinking = request.thinking, .calls = !tools.empty()};
  Result<Grammar> made = [&]() -> Result<Grammar> {
    if (has_outputs) return structured(call.extra.structured_outputs, frame);
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

// What is too large to be compiled is as wrong as what cannot be enforced: it never will be.
Result<std::optional<Grammar>> checked(Result<std::optional<Grammar>> form,
                                       const std::string& field) {
  if (!form && form.error().code == ErrorCode::kExhausted) return invalid(form.error().message);
  if (!form || !*form) return form;
  GrammarMachine machine(**form);
  machine.start();
  if (!machine.overflowed()) return form;
  return invalid(field + ": wanted a form that can begin in at most " +
                 std::to_string(GrammarMachine::kItemsMax) + " ways, found one of more");
}

}  // namespace

Result<std::optional<Grammar>> answer_form(const ChatCall& call) {
  const bool has_outputs = !call.extra.structured_outputs.is_null();
  return checked(form_of(call), has_outputs ? "structured_outputs" : call.format_field);
}

}  // namespace fathom
