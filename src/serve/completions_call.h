#pragma once

// A body of OpenAI's Completions: a raw prompt, as text or ids, without the chat format. With a
// suffix the model fills the middle (spec/chat.md section 6, spec/api.md section 2). Sampling
// options are in force as they are given.
//
// A refusal is kInvalid, HTTP status 400, and one line that names the field.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "serve/chat_call.h"
#include "text/marked_text.h"
#include "text/token.h"

namespace fathom {

struct CompletionsCall {
  CommonFields common;
  bool include_usage = false;
  std::variant<std::string, std::vector<TokenId>> prompt;
  std::optional<std::string> suffix;  // not empty
  // As asked for; 0, where the prompt is told of, asks for nothing beside it.
  std::optional<int64_t> max_tokens;
  int64_t usual_max_tokens = 16;  // where that is absent
  bool adds_bos = true;           // ahead of a text
  ChatCall form;  // an answer of its `response_format` and `structured_outputs` is bound to them
  int64_t n_choices = 1;
  bool echo = false;
  std::optional<int64_t> logprobs;         // so many beside each token, from 0 on
  std::optional<int64_t> prompt_logprobs;  // as vLLM's: so many beside each token of the prompt
  std::vector<std::string> stop;           // no empty ones

  // What the engine is asked for of the prompt: an echo is logged as the answer is.
  std::optional<int64_t> logged_prompt() const {
    return echo && logprobs ? std::max(prompt_logprobs.value_or(0), *logprobs) : prompt_logprobs;
  }
};

inline constexpr int64_t kMaxChoices = 128;
inline constexpr int64_t kMaxInfill = 4096;  // tokens of an answer with a suffix

Result<CompletionsCall> parse_completions_call(std::string_view body);

// BOS, and the markers around prefix and suffix.
MarkedText infill_prompt(std::string_view prefix, std::string_view suffix);

// The ids of a JSON array of integers; `place` names it.
Result<std::vector<TokenId>> read_ids(const JsonArray& values, const std::string& place);

}  // namespace fathom
