#pragma once

// The system text and the messages of a Messages body as messages of Chat Completions: blocks
// become content, reasoning, calls and results.

#include "serve/body_fields.h"
#include "serve/translation.h"

namespace fathom {

// Reads `system` and `messages` of the body. kInvalid names the field.
Result<void> translate_messages(BodyFields& fields, Translation* to);

}  // namespace fathom
