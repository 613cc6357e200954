#include "serve/chat_job.h"

#include <cstdio>
#include <ctime>
#include <random>

namespace fathom {
namespace {

FinishReason reason_of(const Output& output) {
  return output.finish == EndReason::kStop || output.finish == EndReason::kCancelled
             ? FinishReason::kStop
             : FinishReason::kLength;
}

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016lx", static_cast<unsigned long>(value));
  return text;
}

}  // namespace

ChatJob::ChatJob(ReplyHead head, ChatCall call, const Tokenizer& tokenizer)
    : call_(std::move(call)), reply_(std::move(head), call_), decoder_(tokenizer) {}

void ChatJob::feed(const Output& output, std::vector<std::string>* chunks) {
  for (const SampledToken& token : output.tokens) {
    if (reply_.done()) return;
    ++n_tokens_;
    const Result<std::string> text = decoder_.push(token.id);
    FATHOM_CHECK(text.has_value());  // only ids that the tokenizer knows are drawn
    for (std::string& chunk : reply_.feed(*text)) chunks->push_back(std::move(chunk));
  }
}

std::vector<std::string> ChatJob::take(const Output& output) {
  std::vector<std::string> chunks;
  feed(output, &chunks);
  if (output.finish == EndReason::kNone) return chunks;
  ended_ = true;
  if (output.finish == EndReason::kError) {
    failure_ = output.error;
    return chunks;
  }
  if (!reply_.done()) {
    for (std::string& chunk : reply_.feed(decoder_.flush())) chunks.push_back(std::move(chunk));
  }
  for (std::string& chunk : reply_.finish(reason_of(output), usage_of(output))) {
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

ReplyUsage ChatJob::usage_of(const Output& output) const {
  const bool bounded = !output.usage.exact;
  const char* restore = bounded ? "bounded" : output.usage.replayed_tokens == 0 ? "none" : "exact";
  return {.prompt_tokens = output.usage.prompt_tokens,
          .cached_tokens = output.usage.cached_tokens,
          .completion_tokens = n_tokens_,
          .restore = restore,
          .replayed_tokens = output.usage.replayed_tokens};
}

ChatService::ChatService(const LoadedModel& loaded, ChatTemplate chat, ServiceOptions options)
    : loaded_(loaded), chat_(std::move(chat)), options_(std::move(options)) {
  std::random_device device;
  salt_ = static_cast<uint64_t>(device()) << 32 | device();
}

Result<std::unique_ptr<ChatJob>> ChatService::begin(std::string_view body) {
  FATHOM_ASSIGN_OR_RETURN(ChatCall call, parse_chat_call(body));
  if (!call.model.empty() && call.model != options_.model_name) {
    return invalid("model: wanted " + options_.model_name + ", found " + json_quoted(call.model));
  }
  if (call.logprobs) {
    return invalid("logprobs: wanted false, found true, which this version cannot return");
  }
  if (call.request.response_format != ResponseFormat::kText &&
      call.request.response_format != ResponseFormat::kJsonObject) {
    return invalid(
        "response_format: wanted text or json_object, found a form that this version "
        "cannot enforce");
  }
  FATHOM_ASSIGN_OR_RETURN(const RenderedPrompt prompt, chat_.render(call.request));
  if (!prompt.images.empty()) {
    return invalid(prompt.images[0].path +
                   ": wanted text, found an image, which this version cannot read");
  }
  FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                          loaded_.tokenizer->encode(prompt.text.text, prompt.text.markers));
  const auto n_prompt = static_cast<int64_t>(ids.size());
  FATHOM_ASSIGN_OR_RETURN(const int64_t max_tokens,
                          answer_tokens(call, n_prompt, options_.context));
  const uint64_t number = ++n_jobs_;
  const std::string tag = hex(salt_) + hex(number);
  if (!call.seeded) call.sampling.seed = salt_ + number * 0x9E3779B97F4A7C15U;
  const RestoreGrade restore = call.restore.value_or(options_.restore);
  Request request = {.max_tokens = max_tokens, .sampling = call.sampling, .restore = restore};
  request.prompt.assign(ids.begin(), ids.end());
  request.stop_ids = {static_cast<int32_t>(loaded_.model->config().eos_token_id)};
  auto job =
      std::make_unique<ChatJob>(ReplyHead{.id = "chatcmpl-" + tag,
                                          .created = static_cast<int64_t>(std::time(nullptr)),
                                          .model = options_.model_name,
                                          .fingerprint = options_.fingerprint,
                                          .call_prefix = "call_" + tag + "_"},
                                std::move(call), *loaded_.tokenizer);
  job->request_ = std::move(request);
  return job;
}

}  // namespace fathom
