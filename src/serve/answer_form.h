#pragma once

// The form that a call binds its answer to: the calls of strict tools, calls that must come, the
// form that the protocol's own member asks for (`response_format`), or the extension
// "structured_outputs": {"json": SCHEMA} | {"regex": TEXT} | {"choice": [TEXT, ...]} |
// {"grammar": TEXT} (the name and the members are those of vLLM; the grammar's form is
// text/grammar_form.h's).

#include <optional>

#include "serve/chat_call.h"
#include "text/grammar.h"

namespace fathom {

// Nothing where the answer is free. Where tools are offered it may be calls instead. kInvalid, with
// the path of what cannot be enforced or is too large; beside a prefix, strict tools and a forced
// call no other form can.
Result<std::optional<Grammar>> answer_form(const ChatCall& call);

}  // namespace fathom
