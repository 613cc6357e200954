#include "text/grammar_tools.h"

#include <utility>
#include <vector>

#include "text/grammar_schema.h"
#include "text/grammar_schema_keywords.h"
#include "text/grammar_schema_reader.h"
#include "text/markers.h"
#include "text/quote.h"

namespace fathom {
namespace {

using Expr = GrammarBuilder::Expr;

// The library takes a keyword with null for one that is absent; where null may be a value it stays.
Json without_nulls(const Json& value) {
  if (const JsonArray* list = value.as_array()) {
    JsonArray out;
    for (const Json& item : *list) out.push_back(without_nulls(item));
    return Json(std::move(out));
  }
  const JsonObject* members = value.as_object();
  if (members == nullptr) return value;
  JsonObject out;
  for (const JsonMember& member : *members) {
    const bool values = member.key == "const" || member.key == "enum" || member.key == "default";
    if (values) {
      out.push_back(member);
    } else if (!member.value.is_null()) {
      out.push_back({member.key, without_nulls(member.value)});
    }
  }
  return Json(std::move(out));
}

class CallsWriter {
 public:
  Result<Grammar> write(std::span<const ToolDefinition* const> tools, BeforeCalls before) {
    std::vector<Expr> calls;
    for (const ToolDefinition* tool : tools) {
      FATHOM_ASSIGN_OR_RETURN(const Expr one, call(*tool));
      calls.push_back(one);
    }
    const GrammarBuilder::RuleId rule = b_.declare("call");
    b_.define(rule, b_.sequence({open(std::string(kInvokeTag) + " name=\""),
                                 b_.choice(std::move(calls)), close(kInvokeTag)}));
    const Expr more = b_.repeat(b_.sequence({b_.bytes("\n"), b_.call(rule)}), 0, -1);
    const Expr body = b_.sequence({b_.call(rule), more, b_.bytes("\n"), close(kCallsTag)});
    if (before == BeforeCalls::kOpening) return b_.finish(body, {}, "tools");
    const std::string mark(kDsmlText);
    const Expr free = b_.without("<" + mark, {mark, std::string(kThinkCloseText)});
    const Expr block = b_.sequence({open(std::string(kCallsTag) + ">\n"), body});
    const Expr text = before == BeforeCalls::kFeeds ? b_.repeat(b_.bytes("\n"), 0, 2) : free;
    const bool needed = before != BeforeCalls::kAnswer;
    return b_.finish(b_.sequence({text, needed ? block : b_.optional(block)}), {}, "tools");
  }

 private:
  // The mark comes as one token or spelled.
  Expr marked(std::string_view before, std::string_view after) {
    const Expr mark = b_.choice({b_.marker(std::string(kDsmlText)), b_.bytes(kDsmlText)});
    return b_.sequence({b_.bytes(before), mark, b_.bytes(after)});
  }
  Expr open(const std::string& rest) { return marked("<", rest); }
  Expr close(std::string_view tag) { return marked("</", std::string(tag) + ">"); }

  // Of one line, without quotation marks.
  Expr any_name() {
    const CharacterSet out({{0, 0x1F}, {U'"', U'"'}, {kTextEndMark, kTextEndMark}});
    return b_.repeat(b_.characters(out.complement()), 1, -1);
  }

  // The lines of parameters that no schema binds.
  Expr any_parameters() {
    return json_.shared("parameters", [this] {
      const Expr text = b_.sequence({b_.bytes("true\">"), b_.without(kTextEnd, {})});
      const Expr other = b_.sequence({b_.bytes("false\">"), json_.any_value(kJsonDepth)});
      const Expr one = b_.sequence({open(std::string(kParameterTag) + " name=\""), any_name(),
                                    b_.bytes("\" string=\""), b_.choice({text, other}),
                                    close(kParameterTag), b_.bytes("\n")});
      return b_.choice({b_.bytes("\n"), b_.repeat(one, 1, -1)});
    });
  }

  // From the name on, up to the line of the closing tag.
  Result<Expr> call(const ToolDefinition& tool) {
    const Expr name = b_.bytes(tool.name + "\">\n");
    if (!tool.strict) return b_.sequence({name, any_parameters()});
    const Json schema = without_nulls(tool.schema);
    SchemaReader reader(b_, json_, schema, tool.schema_path, true);
    std::vector<SchemaReader::Parameter> parameters;
    if (!schema.is_null()) {
      FATHOM_ASSIGN_OR_RETURN(parameters, reader.read_parameters());
    }
    std::vector<Expr> parts = {name};
    for (const SchemaReader::Parameter& parameter : parameters) {
      if (parameter.name.find('"') != std::string::npos) {
        return refused(tool.schema_path + ".properties." + parameter.name,
                       "a name without quotation marks", quote(parameter.name));
      }
      parts.push_back(
          open(std::string(kParameterTag) + " name=\"" + parameter.name + "\" string=\""));
      parts.push_back(b_.choice({b_.sequence({b_.bytes("true\">"), parameter.text}),
                                 b_.sequence({b_.bytes("false\">"), parameter.other})}));
      parts.push_back(close(kParameterTag));
      parts.push_back(b_.bytes("\n"));
    }
    if (parameters.empty()) parts.push_back(b_.bytes("\n"));
    return b_.sequence(std::move(parts));
  }

  GrammarBuilder b_;
  JsonParts json_{b_, CharacterSet({{kTextEndMark, kTextEndMark}})};
};

}  // namespace

Result<Grammar> tools_grammar(std::span<const ToolDefinition* const> tools, BeforeCalls before) {
  return CallsWriter().write(tools, before);
}

}  // namespace fathom
