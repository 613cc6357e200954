#pragma once

// The input of a Responses body as messages: items become turns. Reasoning, a message and calls
// that follow one another are one turn of the assistant. Items of a type that is not known have no
// effect, as with the published library.

#include "serve/translation.h"

namespace fathom {

// `instructions` may be empty; `input` may be null where they are not.
Result<void> translate_input(const std::string& instructions, const Json* input, Translation* to);

}  // namespace fathom
