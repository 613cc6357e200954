#pragma once

// The strict grammar of a whole generated message: a checker for data, not a parser for serving
// (spec/chat.md section 7). It refuses some of what the renderer itself writes, such as a call
// without arguments.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "text/output_parser.h"

namespace fathom {

enum class StrictFault : uint8_t {
  kMissingThinkEnd,     // thinking mode: no </think>, or a calls block before it
  kMissingEos,          // neither a calls block nor the end token
  kCallFormat,          // something between calls
  kUnterminatedCalls,   // the text ends inside the calls block
  kNameFormat,          // an invoke tag of another form
  kParameterFormat,     // a parameter of another form
  kDuplicateParameter,  // a key twice in one call
  kTextAfterCalls,      // between the calls block and the end token
  kTextAfterEnd,        // after the end token
  kSpecialTokenInText,  // a special spelling in reasoning or content
};

const char* strict_fault_name(StrictFault fault);  // "missing_think_end", ...

struct StrictOutput {
  std::string reasoning;
  std::string content;
  std::vector<ParsedCall> tool_calls;
};

// `text` is the message with its end token. The first fault from the left is returned, except that
// special spellings are looked for last.
std::variant<StrictOutput, StrictFault> parse_strict_output(std::string_view text, bool thinking);

}  // namespace fathom
