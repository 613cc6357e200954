#pragma once

// A chat request on its way to ids: what `run --chat`, `chat` and `prompt` share.

#include <string>
#include <vector>

#include "engine/load.h"
#include "text/chat_template.h"

namespace fathom {

// The request's prompt as ids; only the renderer's own markers become special ids.
Result<std::vector<int32_t>> chat_ids(const LoadedModel& loaded, const ChatRequest& request);

ChatMessage user_message(std::string text);

}  // namespace fathom
