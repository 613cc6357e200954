#pragma once

// Calls that are answered with the tokenizer alone. Bodies are those of Anthropic's count_tokens
// and of vLLM's /tokenize and /detokenize.
//
// Results are JSON bodies. kInvalid names the field; kNotFound: another model is served.

#include <string>
#include <string_view>

#include "serve/chat_service.h"

namespace fathom {

// {"input_tokens"} of a Messages body.
Result<std::string> count_tokens(const ChatService& service, std::string_view body);

// {"prompt"} as /v1/completions would read it (without BOS where add_special_tokens is false), or
// {"messages", ...} as /v1/chat/completions would (without the header of the model's turn where
// add_generation_prompt is false), to {"count", "max_model_len", "tokens",
// "token_strs"}.
Result<std::string> tokenize(const ChatService& service, std::string_view body);

// {"tokens"} to {"prompt"}.
Result<std::string> detokenize(const ChatService& service, std::string_view body);

}  // namespace fathom
