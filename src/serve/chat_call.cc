#include "serve/chat_call.h"

#include <algorithm>

#include "text/json_text.h"

namespace fathom {
namespace {

constexpr int64_t kDefaultPlain = 8192;
constexpr int64_t kDefaultThinking = 65'536;
constexpr int64_t kDefaultMaxEffort = 131'072;
constexpr double kTopPMin = 0.95;

void read_restore(BodyFields& fields, std::optional<RestoreGrade>* restore) {
  std::string grade;
  fields.text("restore", grade);
  if (grade.empty()) return;
  if (grade != "exact" && grade != "bounded") {
    return fields.refuse("restore", "exact or bounded", json_quoted(grade));
  }
  *restore = grade == "exact" ? RestoreGrade::kExact : RestoreGrade::kBounded;
}

}  // namespace

CommonFields read_common(BodyFields& fields, Protocol protocol) {
  CommonFields common;
  fields.text("model", common.model);
  fields.flag("stream", common.stream);
  SamplingOptions& sampling = common.sampling;
  fields.number("temperature", 0, 2, sampling.temperature);
  if (fields.number("top_p", 0, 1, sampling.top_p) && sampling.top_p == 0) {
    fields.refuse("top_p", "a number above 0, to 1", "0");
  }
  fields.number("min_p", kShareRange.low, kShareRange.high, sampling.min_p);
  if (protocol != Protocol::kMessages) {  // -1 and 0 are all tokens, as with vLLM
    const auto top_k = fields.integer("top_k", -1, static_cast<int64_t>(kTopKRange.high));
    sampling.top_k = std::max<int64_t>(top_k.value_or(0), 0);
  }
  fields.number("repetition_penalty", kRepetitionRange.low, kRepetitionRange.high,
                sampling.repetition_penalty);
  fields.number("presence_penalty", -2, 2, sampling.presence_penalty);
  fields.number("frequency_penalty", -2, 2, sampling.frequency_penalty);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) {
    sampling.seed = static_cast<uint64_t>(*seed);
    common.seeded = true;
  }
  ExtraFields& extra = common.extra;
  if (const Json* form = fields.find("structured_outputs")) extra.structured_outputs = *form;
  read_restore(fields, &extra.restore);
  fields.flag("ignore_eos", extra.ignore_eos);
  extra.passed_over = check_members(fields, protocol);
  return common;
}

MaxTokens read_max_tokens(BodyFields& fields, const char* name, int64_t own_min, int64_t own_max) {
  MaxTokens limit = {.own = fields.integer(name, own_min, own_max), .other = {}};
  for (const char* other : {"max_tokens", "max_completion_tokens", "max_output_tokens"}) {
    if (std::string_view(other) == name) continue;
    const auto asked = fields.integer(other, 1, INT64_MAX);
    if (asked && !limit.own && !limit.other)
      limit.other = std::min({*asked, own_max, kMaxTokensMax});
  }
  return limit;
}

int read_default_effort(BodyFields& fields, int effort) {
  const Json* value = fields.object("chat_template_kwargs");
  if (value == nullptr) return effort;
  BodyFields inner(*value, "chat_template_kwargs");
  for (const JsonMember& member : *value->as_object()) {
    if (member.key == "reasoning_effort" && !member.value.is_null()) {
      const Result<int> asked = parse_effort(member.value, inner.place(member.key));
      if (!asked) inner.keep(asked.error());
      if (asked) effort = *asked;
    } else if (member.key != "thinking" && member.key != "enable_thinking") {
      inner.refuse(member.key, "thinking, enable_thinking or reasoning_effort in its place",
                   member.value.kind_name());
    }
  }
  bool thinks = effort > 0;
  inner.flag("thinking", thinks);
  inner.flag("enable_thinking", thinks);
  fields.keep(inner.done());
  if (!thinks) return 0;
  return effort > 0 ? effort : kEffortHigh;
}

void apply_common(const CommonFields& common, ChatCall* call) {
  call->model = common.model;
  call->stream = common.stream;
  call->sampling = common.sampling;
  call->seeded = common.seeded;
  call->extra = common.extra;
  SamplingOptions& sampling = call->sampling;
  if (!call->request.thinking) {
    sampling.top_p = 1;
    return;
  }
  sampling.temperature = 1;
  sampling.presence_penalty = sampling.frequency_penalty = 0;
  sampling.top_p = std::max(sampling.top_p, kTopPMin);
}

Result<ChatCall> parse_chat_call(std::string_view body, int effort) {
  FATHOM_ASSIGN_OR_RETURN(const Json parsed, parse_body(body));
  ChatCall call;
  BodyFields fields(parsed);
  const ChatDefaults defaults = {.effort = read_default_effort(fields, effort)};
  FATHOM_RETURN_IF_ERROR(fields.done());
  FATHOM_ASSIGN_OR_RETURN(call.request, parse_chat_request(parsed, defaults));
  apply_common(read_common(fields, Protocol::kChat), &call);
  if (const Json* options = fields.object("stream_options")) {
    BodyFields inner(*options, "stream_options");
    inner.flag("include_usage", call.include_usage);
    fields.keep(inner.done());
  }
  const MaxTokens limit = read_max_tokens(fields, "max_tokens", 1, kMaxTokensMax);
  call.max_tokens = limit.own;
  call.other_max_tokens = limit.other;
  if (const Json* n = fields.find("n"); n != nullptr && json_text(*n) != "1") {
    fields.refuse("n", "1 (more choices are a matter of Completions)",
                  n->is_number() ? json_text(*n) : n->kind_name());
  }
  fields.flag("logprobs", call.logprobs);
  const auto top = fields.integer("top_logprobs", 0, kTopLogprobsMax);
  if (top && !call.logprobs) fields.refuse("logprobs", "true beside top_logprobs", "nothing");
  call.top_logprobs = top.value_or(0);
  FATHOM_RETURN_IF_ERROR(fields.done());
  return call;
}

Result<int64_t> answer_tokens(const ChatCall& call, int64_t prompt_tokens, int64_t context) {
  const bool most = call.request.effort >= kEffortMax;
  const int64_t usual = !call.request.thinking ? kDefaultPlain
                        : most                 ? kDefaultMaxEffort
                                               : kDefaultThinking;
  return answer_tokens({.prompt_field = call.prompt_field,
                        .max_tokens_field = call.max_tokens_field,
                        .max_tokens = call.max_tokens,
                        .usual = call.other_max_tokens.value_or(usual)},
                       prompt_tokens, context);
}

Result<int64_t> answer_tokens(const AnswerBounds& bounds, int64_t prompt_tokens, int64_t context) {
  const int64_t left = context - prompt_tokens;
  if (left < 1) {
    return invalid(std::string(bounds.prompt_field) + ": wanted a prompt of at most " +
                   std::to_string(context - 1) + " tokens, found " + std::to_string(prompt_tokens));
  }
  if (!bounds.max_tokens) return std::min(bounds.usual, left);
  const int64_t most = std::min(*bounds.max_tokens, kMaxTokensMax);
  if (most <= left) return most;
  return invalid(std::string(bounds.max_tokens_field) + ": wanted at most " + std::to_string(left) +
                 " beside a prompt of " + std::to_string(prompt_tokens) +
                 " tokens in a context of " + std::to_string(context) + ", found " +
                 std::to_string(*bounds.max_tokens));
}

}  // namespace fathom
