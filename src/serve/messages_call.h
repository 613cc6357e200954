#pragma once

// A body of Anthropic's Messages as a conversation. Source: spec/api.md section 5, spec/chat.md
// sections 2 and 3. Effort is `output_config.effort`, a name or an integer from 1 to 100;
// `output_config.format` (or `output_format`) is a schema that binds the answer, and is shown to
// the model as with the other protocols; `thinking.budget_tokens` is no bound; top_k, container,
// mcp_servers and service_tier have no effect. A name that begins with "claude" stands for the
// model that is served.
//
// A refusal is kInvalid, HTTP status 400, and one line that names the field.

#include <string_view>

#include "serve/chat_call.h"

namespace fathom {

Result<ChatCall> parse_messages_call(std::string_view body, int effort = kEffortHigh);

}  // namespace fathom
