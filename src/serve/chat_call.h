#pragma once

// A conversation's body as values: the chat request (text/chat_request.h) and what stands beside
// it for sampling and transport, whichever protocol it came in. Here: Chat Completions. Source:
// spec/api.md sections 1 and 2; what is in force after conversion follows the published library
// (tests/golden/chat/requests.jsonl).
//
// A refusal is kInvalid, HTTP status 400, and one line that names the field.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/executor.h"
#include "engine/runner.h"
#include "engine/sampler.h"
#include "serve/body_fields.h"
#include "serve/body_members.h"
#include "text/chat_request.h"

namespace fathom {

// What bodies of all routes may carry beyond their protocols.
struct ExtraFields {
  Json structured_outputs;               // null: absent
  std::optional<RestoreGrade> restore;   // "exact" or "bounded"
  bool ignore_eos = false;               // the answer goes on behind an end
  std::vector<std::string> passed_over;  // members without effect, which the answer names
};

struct ChatCall {
  ChatRequest request;
  std::string model;  // as asked for; empty: whatever is served
  bool stream = false;
  bool include_usage = false;         // in the last chunk of a stream
  std::optional<int64_t> max_tokens;  // as asked for in the protocol's own member
  // The same in another protocol's, where the own one is absent: an addition, lowered to what is
  // possible and never refused for its size.
  std::optional<int64_t> other_max_tokens;
  // With thinking: temperature 1, no penalties, top_p in [0.95, 1]. Without it: top_p 1.
  SamplingOptions sampling;
  bool seeded = false;  // the request gave the seed
  bool logprobs = false;
  int64_t top_logprobs = 0;
  ExtraFields extra;
  // What its protocol calls them, for messages.
  const char* prompt_field = "messages";
  const char* max_tokens_field = "max_tokens";
  const char* format_field = "response_format";
  const char* schema_field = "response_format.json_schema.schema";
};

// `effort`: where the body says nothing of it, 1 to 100; 0: without thinking.
Result<ChatCall> parse_chat_call(std::string_view body, int effort = kEffortHigh);

inline constexpr int64_t kMaxTokensMax = 393'216;

// The members that all protocols have under one name.
struct CommonFields {
  std::string model;
  bool stream = false;
  SamplingOptions sampling;  // as asked for
  bool seeded = false;
  ExtraFields extra;
};
// Refuses what this protocol has not in force (body_members.h).
CommonFields read_common(BodyFields& fields, Protocol protocol);

// The limit of an answer: in the protocol's own member `name`, or, where that is absent, in that of
// another protocol, so that a bound on cost is never lost.
struct MaxTokens {
  std::optional<int64_t> own;
  std::optional<int64_t> other;
};
MaxTokens read_max_tokens(BodyFields& fields, const char* name, int64_t own_min, int64_t own_max);

// The effort that holds where the body's own members say nothing: that of `chat_template_kwargs`
// (`thinking` or `enable_thinking`, and `reasoning_effort`, as with vLLM and SGLang) or `effort`.
int read_default_effort(BodyFields& fields, int effort);

// The call takes them, and its sampling what is in force with or without thinking.
void apply_common(const CommonFields& common, ChatCall* call);

// Tokens that an answer may have: what was asked for, or the default of its kind lowered to the
// context left. kInvalid, naming both numbers, where a prompt alone or with what was asked for is
// longer than the context.
Result<int64_t> answer_tokens(const ChatCall& call, int64_t prompt_tokens, int64_t context);

// The same where no more than the field names, what was asked for and a usual number are known.
struct AnswerBounds {
  const char* prompt_field = "";
  const char* max_tokens_field = "";
  std::optional<int64_t> max_tokens;
  int64_t usual = 0;
};
Result<int64_t> answer_tokens(const AnswerBounds& bounds, int64_t prompt_tokens, int64_t context);

}  // namespace fathom
