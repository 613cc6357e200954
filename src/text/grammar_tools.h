#pragma once

// The calls of strict tools as a grammar, in the model's own form (spec/chat.md 1 and 4):
//
//   any text, reasoning and its end among it; or after such a text a block of calls, and the end.
//
// A block begins with "<｜DSML｜" wherever that stands, as the parser of the answer has it (also
// inside reasoning). Each call names one of the tools and has all its parameters in the order of
// `properties`: a text as it is under string="true", any other value as JSON under string="false".
// Values follow the tool's schema as it came (docs/design/grammar.md); objects are closed.
//
// What is produced is a subset: texts of a schema with a pattern, format or count have no
// fullwidth bar, strings inside JSON write it as an escape, so that no value can end early. Of
// added tokens only those of the format may come.

#include <span>

#include "base/result.h"
#include "text/chat_request.h"
#include "text/grammar.h"

namespace fathom {

// All `tools` are strict. `inside`: the prompt opened the block, and at least one call follows.
// kInvalid, the path of the keyword first, where a schema cannot be enforced.
Result<Grammar> tools_grammar(std::span<const ToolDefinition* const> tools, bool inside);

}  // namespace fathom
