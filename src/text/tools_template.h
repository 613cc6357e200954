#pragma once

// The fixed text of the tools block: what stands before and after the schemas of the offered tools.
// The project carries none of its own: the released model's text is the Python literal
// TOOLS_TEMPLATE of the checkpoint's encoding/encoding.py, a small model has
// encoding/tools_template.txt (docs/formats/tools-template.md).
//
// Both are written in the form of Python's str.format: {name} is a placeholder, {{ and }} are
// braces. Placeholders: {tool_schemas}, exactly once, is where the schemas go; {dsml_token},
// {thinking_start_token} and {thinking_end_token} are markers; {tc_block_name},
// {tool_call_tag_name} and {tool_parameter_tag_name} are the tag names. At most 256 stand in a
// text.

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/marked_text.h"

namespace fathom {

struct ToolsTemplate {
  MarkedText head;
  MarkedText tail;
};

// From text with placeholders.
Result<ToolsTemplate> parse_tools_template(std::string_view format);

// From the source of an encoding.py. The literal may be of any kind Python has except bytes: plain,
// raw or f, single or triple quotes, adjacent ones joined, in parentheses. A placeholder that is
// not listed above may name another literal of the same file.
Result<ToolsTemplate> parse_encoding_source(std::string_view source);

// Reads encoding/tools_template.txt of a model's folder or, without it, encoding/encoding.py.
// kNotFound if there is neither.
Result<ToolsTemplate> load_tools_template(const std::string& model_dir);

}  // namespace fathom
