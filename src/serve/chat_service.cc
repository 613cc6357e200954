#include "serve/chat_service.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <random>
#include <utility>

#include "serve/answer_form.h"
#include "serve/chat_reply.h"
#include "serve/completions_reply.h"
#include "serve/messages_call.h"
#include "serve/messages_reply.h"
#include "serve/responses_reply.h"
#include "text/markers.h"
#include "text/quote.h"

namespace fathom {
namespace {

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016lx", static_cast<unsigned long>(value));
  return text;
}

// Most that is counted where a context is short.
constexpr int64_t kCountedMin = 65'536;

Result<std::vector<TokenId>> named(Result<std::vector<TokenId>> ids, const TokenBound& bound) {
  if (ids) return ids;
  if (ids.error().code != ErrorCode::kInvalid) {
    return invalid(std::string(bound.field) + ": " + ids.error().message);
  }
  const bool prompt = bound.wanted < bound.n_max;
  return invalid(std::string(bound.field) + ": wanted " + (prompt ? "a prompt of " : "") +
                 "at most " + std::to_string(bound.wanted) + " tokens, found more than " +
                 std::to_string(bound.n_max));
}

Result<void> check_logged_prompt(const CompletionsCall& call, size_t n_prompt) {
  const std::optional<int64_t> n_top = call.logged_prompt();
  if (!n_top) return {};
  const int64_t n = static_cast<int64_t>(n_prompt) * (1 + *n_top) * call.n_choices;
  if (n <= kPromptLogprobsMax) return {};
  return invalid(std::string(call.prompt_logprobs ? "prompt_logprobs" : "logprobs") +
                 ": wanted at most " + std::to_string(kPromptLogprobsMax) +
                 " log probabilities of prompt tokens and likely ones in all choices, found " +
                 std::to_string(n));
}

Result<void> check_choices(int64_t n, int64_t n_max) {
  if (n <= n_max) return {};
  return invalid("n: wanted at most " + std::to_string(n_max) +
                 ", as many answers as are computed at once (--sequences), found " +
                 std::to_string(n));
}

}  // namespace

ChatService::ChatService(const LoadedModel& loaded, ChatTemplate chat, ServiceOptions options)
    : loaded_(loaded),
      chat_(std::move(chat)),
      options_(std::move(options)),
      created_s_(static_cast<int64_t>(std::time(nullptr))) {
  std::random_device device;
  salt_ = static_cast<uint64_t>(device()) << 32 | device();
}

Result<std::unique_ptr<ChatJob>> ChatService::begin(Protocol protocol, std::string_view body) {
  switch (protocol) {
    case Protocol::kChat: {
      FATHOM_ASSIGN_OR_RETURN(ChatCall call, parse_chat_call(body, options_.effort));
      return begin_chat(call, "chatcmpl-", [&](ReplyHead head) {
        return std::make_unique<ChatReply>(std::move(head), call);
      });
    }
    case Protocol::kMessages: {
      FATHOM_ASSIGN_OR_RETURN(ChatCall call, parse_messages_call(body, options_.effort));
      return begin_chat(call, "msg_", [&](ReplyHead head) {
        head.call_prefix.replace(0, 4, "toolu");
        return std::make_unique<MessagesReply>(std::move(head), call);
      });
    }
    case Protocol::kResponses: {
      FATHOM_ASSIGN_OR_RETURN(ResponsesCall call, parse_responses_call(body, options_.effort));
      return begin_chat(call.chat, "resp_", [&](ReplyHead head) {
        return std::make_unique<ResponsesReply>(std::move(head), call);
      });
    }
    case Protocol::kCompletions:
      return begin_completions(body);
  }
  return invalid("protocol: wanted one of this server, found another");
}

Result<void> ChatService::check_model(const std::string& name) const {
  if (name.empty() || name == options_.model_name) return {};
  return Error{ErrorCode::kNotFound,
               "model: wanted " + options_.model_name + ", found " + quote(name)};
}

TokenBound ChatService::counted(const char* field) const {
  const int64_t n_max = std::max(options_.context, kCountedMin);
  return {.field = field, .n_max = n_max, .wanted = n_max};
}

// Above the context, so that the length of what is a little too long is told (answer_tokens).
TokenBound ChatService::prompt_bound(const char* field) const {
  return {.field = field, .n_max = 2 * options_.context, .wanted = options_.context - 1};
}

Result<std::vector<TokenId>> ChatService::text_ids(const std::string& text, bool raw_prompt,
                                                   const TokenBound& bound) const {
  const auto n_max = static_cast<size_t>(bound.n_max);
  return named(raw_prompt ? raw_prompt_ids(loaded_, text, n_max)
                          : loaded_.tokenizer->encode(text, AddedTokens::kMatch, n_max),
               bound);
}

Result<std::vector<TokenId>> ChatService::prompt_ids(const ChatRequest& request,
                                                     const TokenBound& bound,
                                                     bool generation) const {
  const Result<RenderedPrompt> prompt = chat_.render(request, generation);
  if (!prompt) return invalid(prompt.error().message);
  if (!prompt->images.empty()) {
    return invalid(prompt->images[0].path +
                   ": wanted text, found an image, which this version cannot read");
  }
  return named(loaded_.tokenizer->encode(prompt->text.text, prompt->text.markers,
                                         static_cast<size_t>(bound.n_max)),
               bound);
}

Result<std::unique_ptr<ChatJob>> ChatService::begin_chat(const ChatCall& call,
                                                         const char* id_prefix,
                                                         const MakeReply& make) {
  FATHOM_RETURN_IF_ERROR(check_model(call.model));
  FATHOM_ASSIGN_OR_RETURN(std::optional<Grammar> form, answer_form(call));
  FATHOM_ASSIGN_OR_RETURN(std::vector<TokenId> ids,
                          prompt_ids(call.request, prompt_bound(call.prompt_field)));
  FATHOM_ASSIGN_OR_RETURN(const int64_t max_tokens,
                          answer_tokens(call, static_cast<int64_t>(ids.size()), options_.context));
  const uint64_t job = ++n_jobs_;
  ReplyHead head = head_of(job, id_prefix, call.extra);
  Request request = request_of(std::move(ids), call.sampling, call.seeded, call.extra, job);
  request.max_tokens = max_tokens;
  request.top_logprobs = call.top_logprobs;
  request.grammar = std::move(form);
  std::string id = head.id;
  auto made = std::make_unique<ChatJob>(make(std::move(head)), std::move(request), call.stream,
                                        call.logprobs, *loaded_.tokenizer);
  made->set_id(std::move(id));
  return made;
}

Result<std::vector<TokenId>> ChatService::completion_ids(const CompletionsCall& call) const {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&call.prompt)) {
    const Result<void> known = loaded_.tokenizer->check_ids(*ids);
    if (!known) return invalid("prompt: " + known.error().message);
    return *ids;
  }
  const auto& text = std::get<std::string>(call.prompt);
  const TokenBound bound = prompt_bound("prompt");
  if (!call.suffix) return text_ids(text, call.adds_bos, bound);
  for (const std::string_view marker : {kInfillBeginText, kInfillHoleText, kInfillEndText}) {
    if (loaded_.tokenizer->added_token(marker)) continue;
    return invalid("suffix: wanted none, since the model has no token " + std::string(marker) +
                   ", found one");
  }
  const MarkedText prompt = infill_prompt(text, *call.suffix);
  return named(
      loaded_.tokenizer->encode(prompt.text, prompt.markers, static_cast<size_t>(bound.n_max)),
      bound);
}

Result<std::unique_ptr<ChatJob>> ChatService::begin_completions(std::string_view body) {
  FATHOM_ASSIGN_OR_RETURN(const CompletionsCall call, parse_completions_call(body));
  FATHOM_RETURN_IF_ERROR(check_model(call.common.model));
  FATHOM_ASSIGN_OR_RETURN(std::optional<Grammar> form, answer_form(call.form));
  FATHOM_ASSIGN_OR_RETURN(std::vector<TokenId> ids, completion_ids(call));
  FATHOM_ASSIGN_OR_RETURN(const int64_t max_tokens,
                          answer_tokens({.prompt_field = "prompt",
                                         .max_tokens_field = "max_tokens",
                                         .max_tokens = call.max_tokens,
                                         .usual = call.usual_max_tokens},
                                        static_cast<int64_t>(ids.size()), options_.context));
  FATHOM_RETURN_IF_ERROR(check_logged_prompt(call, ids.size()));
  FATHOM_RETURN_IF_ERROR(check_choices(call.n_choices, options_.n_choices_max));
  std::string echo;
  if (call.echo) {
    const auto* text = std::get_if<std::string>(&call.prompt);
    if (text != nullptr) echo = *text;
    if (text == nullptr) {
      FATHOM_ASSIGN_OR_RETURN(echo, loaded_.tokenizer->decode(ids));
    }
  }
  const CommonFields& common = call.common;
  const uint64_t job = ++n_jobs_;
  ReplyHead head = head_of(job, "cmpl-", common.extra);
  Request request = request_of(std::move(ids), common.sampling, common.seeded, common.extra, job);
  request.max_tokens = std::max<int64_t>(max_tokens, 1);  // of 0 asked for, none is shown
  request.grammar = std::move(form);
  request.n_choices = call.n_choices;
  request.top_logprobs = call.logprobs.value_or(0);
  request.prompt_logprobs = call.logged_prompt();
  std::string id = head.id;
  auto made = std::make_unique<ChatJob>(
      std::make_unique<CompletionsReply>(std::move(head), call, std::move(echo)),
      std::move(request), common.stream, call.logprobs.has_value(), *loaded_.tokenizer);
  made->set_id(std::move(id));
  return made;
}

Request ChatService::request_of(std::vector<TokenId> prompt, const SamplingOptions& sampling,
                                bool seeded, const ExtraFields& extra, uint64_t job) const {
  Request request = {.prompt = std::move(prompt),
                     .sampling = sampling,
                     .restore = extra.restore.value_or(options_.restore)};
  if (!seeded) request.sampling.seed = salt_ + job * 0x9E3779B97F4A7C15U;
  if (!extra.ignore_eos) {
    request.stop_ids = {static_cast<int32_t>(loaded_.model->config().eos_token_id)};
  }
  return request;
}

ReplyHead ChatService::head_of(uint64_t job, const char* id_prefix,
                               const ExtraFields& extra) const {
  const std::string tag = hex(salt_) + hex(job);
  return {.id = id_prefix + tag,
          .created = static_cast<int64_t>(std::time(nullptr)),
          .model = options_.model_name,
          .fingerprint = options_.fingerprint,
          .call_prefix = "call_" + tag + "_",
          .passed_over = extra.passed_over};
}

}  // namespace fathom
