#pragma once

// Calls of tools as a grammar, in the model's own form (spec/chat.md 1 and 4):
//
//   any text, reasoning and its end among it; or after such a text a block of calls, and the end.
//
// A block begins with "<｜DSML｜" wherever that stands, as the parser of the answer has it (also
// inside reasoning). Each call names one of the tools. That of a strict one has all its parameters
// in the order of `properties`: a text as it is under string="true", any other value as JSON under
// string="false". Values follow the tool's schema as it came (docs/design/grammar.md); objects are
// closed. A call of another tool has parameters of any names and values in that form.
//
// What is produced is a subset: texts of a schema with a pattern, format or count have no
// fullwidth bar, strings inside JSON write it as an escape, so that no value can end early. Of
// added tokens only those of the format may come.

#include <span>

#include "base/result.h"
#include "text/chat_request.h"
#include "text/grammar.h"

namespace fathom {

// What stands before the block of calls.
enum class BeforeCalls : uint8_t {
  kAnswer,   // text that may be the whole answer: there need not be a block
  kText,     // text that a block follows
  kFeeds,    // at most two line feeds, then a block
  kOpening,  // the prompt opened the block: at least one call follows
};

// kInvalid, the path of the keyword first, where the schema of a strict tool cannot be enforced.
Result<Grammar> tools_grammar(std::span<const ToolDefinition* const> tools, BeforeCalls before);

}  // namespace fathom
