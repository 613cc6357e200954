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

CommonFields read_common(BodyFields& fields) {
  CommonFields common;
  fields.text("model", common.model);
  fields.flag("stream", common.stream);
  SamplingOptions& sampling = common.sampling;
  fields.number("temperature", 0, 2, sampling.temperature);
  if (fields.number("top_p", 0, 1, sampling.top_p) && sampling.top_p == 0) {
    fields.refuse("top_p", "a number above 0, to 1", "0");
  }
  fields.number("presence_penalty", -2, 2, sampling.presence_penalty);
  fields.number("frequency_penalty", -2, 2, sampling.frequency_penalty);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) {
    sampling.seed = static_cast<uint64_t>(*seed);
    common.seeded = true;
  }
  read_restore(fields, &common.restore);
  return common;
}

void apply_common(const CommonFields& common, ChatCall* call) {
  call->model = common.model;
  call->stream = common.stream;
  call->sampling = common.sampling;
  call->seeded = common.seeded;
  call->restore = common.restore;
  SamplingOptions& sampling = call->sampling;
  if (!call->request.thinking) {
    sampling.top_p = 1;
    return;
  }
  sampling.temperature = 1;
  sampling.presence_penalty = sampling.frequency_penalty = 0;
  sampling.top_p = std::max(sampling.top_p, kTopPMin);
}

Result<ChatCall> parse_chat_call(std::string_view body) {
  FATHOM_ASSIGN_OR_RETURN(const Json parsed, parse_body(body));
  ChatCall call;
  FATHOM_ASSIGN_OR_RETURN(call.request, parse_chat_request(parsed));
  BodyFields fields(parsed);
  apply_common(read_common(fields), &call);
  if (const Json* options = fields.object("stream_options")) {
    BodyFields inner(*options, "stream_options");
    inner.flag("include_usage", call.include_usage);
    fields.keep(inner.done());
  }
  call.max_tokens = fields.integer("max_tokens", 1, kMaxTokensMax);
  fields.integer("n", 1, 1);
  fields.flag("logprobs", call.logprobs);
  const auto top = fields.integer("top_logprobs", 0, kTopLogprobsMax);
  if (top && !call.logprobs) fields.refuse("logprobs", "true beside top_logprobs", "nothing");
  call.top_logprobs = top.value_or(0);
  if (const Json* form = fields.find("structured_outputs")) call.structured_outputs = *form;
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
                        .usual = usual},
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
