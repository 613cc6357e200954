#include "serve/completions_call.h"

#include <limits>

#include "serve/translation.h"
#include "text/markers.h"

namespace fathom {
namespace {

constexpr size_t kStopMax = 16;

void read_prompt(BodyFields& fields, CompletionsCall* call) {
  constexpr const char* kWanted = "a string or an array of token ids";
  const Json* prompt = fields.find("prompt");
  // A list of one prompt is that prompt.
  if (prompt != nullptr && prompt->as_array() != nullptr && !prompt->as_array()->empty() &&
      !prompt->as_array()->front().is_number()) {
    const size_t n = prompt->as_array()->size();
    if (n > 1) return fields.refuse("prompt", "one prompt", std::to_string(n));
    prompt = &prompt->as_array()->front();
  }
  if (prompt == nullptr) return fields.refuse("prompt", kWanted, "nothing");
  if (prompt->as_string() != nullptr) {
    call->prompt = *prompt->as_string();
    return;
  }
  if (prompt->as_array() == nullptr) return fields.refuse("prompt", kWanted, prompt->kind_name());
  const auto ids = read_ids(*prompt->as_array(), "prompt");
  if (!ids) return fields.keep(ids.error());
  if (ids->empty()) return fields.refuse("prompt", "at least one token id", "none");
  call->prompt = *ids;
}

void read_stop(BodyFields& fields, CompletionsCall* call) {
  const Json* value = fields.find("stop");
  if (value == nullptr) return;
  JsonArray one;
  if (value->as_string() != nullptr) one.push_back(*value);
  const JsonArray* items = value->as_string() != nullptr ? &one : value->as_array();
  if (items == nullptr) {
    return fields.refuse("stop", "a string or an array of strings", value->kind_name());
  }
  if (items->size() > kStopMax) {
    return fields.refuse("stop", "at most 16 strings", std::to_string(items->size()));
  }
  for (const Json& item : *items) {
    if (item.as_string() == nullptr || item.as_string()->empty()) {
      return fields.refuse("stop", "strings that are not empty", &item);
    }
    if (item.as_string()->size() > kStopBytesMax) {
      return fields.refuse("stop", "strings of at most " + std::to_string(kStopBytesMax) + " bytes",
                           std::to_string(item.as_string()->size()));
    }
    call->stop.push_back(*item.as_string());
  }
}

// The form goes through the checks of Chat Completions.
void read_form(BodyFields& fields, CompletionsCall* call) {
  call->form.extra = call->common.extra;
  Translation translation;
  translation.add_message("user", Json(std::string("json")), "prompt");
  if (const Json* format = fields.find("response_format")) {
    translation.set("response_format", *format);
  }
  Result<ChatRequest> request = translation.parse({.effort = 0});
  if (!request) return fields.keep(request.error());
  call->form.request = std::move(*request);
}

void read_limit(BodyFields& fields, CompletionsCall* call) {
  const MaxTokens limit =
      read_max_tokens(fields, "max_tokens", 0, call->suffix ? kMaxInfill : kMaxTokensMax);
  call->max_tokens = limit.own;
  if (limit.other) call->usual_max_tokens = *limit.other;
  if (call->max_tokens == 0 && !call->echo && !call->prompt_logprobs) {
    fields.refuse("max_tokens", "1 or more without echo and prompt_logprobs", "0");
  }
}

void refuse_what_is_not_built(BodyFields& fields, const CompletionsCall& call) {
  if (call.common.stream && call.logged_prompt()) {
    fields.refuse(
        "stream",
        call.prompt_logprobs ? "false beside prompt_logprobs" : "false beside echo and logprobs",
        "true");
  }
  if (call.suffix && call.echo) fields.refuse("echo", "false beside a suffix", "true");
  if (call.suffix && !std::holds_alternative<std::string>(call.prompt)) {
    fields.refuse("prompt", "a string beside a suffix", "token ids");
  }
}

}  // namespace

Result<CompletionsCall> parse_completions_call(std::string_view body) {
  FATHOM_ASSIGN_OR_RETURN(const Json parsed, parse_body(body));
  BodyFields fields(parsed);
  CompletionsCall call;
  call.common = read_common(fields, Protocol::kCompletions);
  read_prompt(fields, &call);
  if (const Json* options = fields.object("stream_options")) {
    BodyFields inner(*options, "stream_options");
    inner.flag("include_usage", call.include_usage);
    fields.keep(inner.done());
  }
  std::string suffix;
  fields.text("suffix", suffix);
  if (!suffix.empty()) call.suffix = suffix;
  fields.flag("add_special_tokens", call.adds_bos);
  call.n_choices = fields.integer("n", 1, kMaxChoices).value_or(1);
  fields.integer("best_of", call.n_choices, call.n_choices);
  fields.flag("echo", call.echo);
  call.logprobs = fields.integer("logprobs", 0, kTopLogprobsMax);
  call.prompt_logprobs = fields.integer("prompt_logprobs", 0, kTopLogprobsMax);
  read_limit(fields, &call);
  read_stop(fields, &call);
  read_form(fields, &call);
  refuse_what_is_not_built(fields, call);
  FATHOM_RETURN_IF_ERROR(fields.done());
  return call;
}

MarkedText infill_prompt(std::string_view prefix, std::string_view suffix) {
  MarkedText text;
  text.marker(kBosText);
  text.marker(kInfillBeginText);
  text.plain(prefix);
  text.marker(kInfillHoleText);
  text.plain(suffix);
  text.marker(kInfillEndText);
  return text;
}

Result<std::vector<TokenId>> read_ids(const JsonArray& values, const std::string& place) {
  std::vector<TokenId> ids;
  for (const Json& value : values) {
    const int64_t* id = value.as_int64();
    if (id == nullptr || *id < 0 || *id > std::numeric_limits<TokenId>::max()) {
      return invalid(place + "[" + std::to_string(ids.size()) + "]: wanted a token id, found " +
                     (value.is_number() ? json_text(value) : value.kind_name()));
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

}  // namespace fathom
