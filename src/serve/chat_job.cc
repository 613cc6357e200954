#include "serve/chat_job.h"

#include <utility>

namespace fathom {
namespace {

FinishReason reason_of(const Output& output) {
  return output.finish == EndReason::kStop || output.finish == EndReason::kCancelled
             ? FinishReason::kStop
             : FinishReason::kLength;
}

void append(ReplyEvents* events, ReplyEvents more) {
  for (ReplyEvent& event : more) events->push_back(std::move(event));
}

}  // namespace

ChatJob::ChatJob(std::unique_ptr<Reply> reply, Request request, bool stream, bool logs,
                 const Tokenizer& tokenizer)
    : reply_(std::move(reply)),
      request_(std::move(request)),
      stream_(stream),
      logs_(logs),
      tokenizer_(tokenizer),
      n_prompt_(static_cast<int64_t>(request_.prompt.size())),
      first_id_(request_.prompt.empty() ? 0 : request_.prompt.front()) {
  for (int64_t i = 0; i < request_.n_choices; ++i) {
    lanes_.push_back(Lane{.decoder = StreamDecoder(tokenizer)});
  }
}

bool ChatJob::said_all() const {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].ended && !reply_->done(static_cast<int64_t>(i))) return false;
  }
  return true;
}

LoggedToken ChatJob::logged(const SampledToken& token) const {
  LoggedToken out = {
      .bytes = std::string(tokenizer_.token_bytes(token.id)), .logprob = token.logprob, .top = {}};
  for (const TokenLogprob& likely : token.top) {
    out.top.emplace_back(tokenizer_.token_bytes(likely.id), likely.logprob);
  }
  return out;
}

RankedToken ChatJob::ranked(const TokenLogprob& token, int64_t rank) const {
  return {.id = token.id,
          .bytes = std::string(tokenizer_.token_bytes(token.id)),
          .logprob = token.logprob,
          .rank = rank};
}

std::vector<LoggedPromptToken> ChatJob::logged_prompt(
    const std::vector<PromptLogprob>& tokens) const {
  std::vector<LoggedPromptToken> out;
  out.push_back({.said = ranked({.id = first_id_}, 0), .top = {}});
  for (const PromptLogprob& token : tokens) {
    out.push_back({.said = ranked(token.token, token.rank), .top = {}});
    for (const TokenLogprob& likely : token.top) {
      const auto rank = static_cast<int64_t>(out.back().top.size()) + 1;
      out.back().top.push_back(ranked(likely, rank));
    }
  }
  return out;
}

void ChatJob::feed(const Output& output, ReplyEvents* events) {
  StreamDecoder& decoder = lanes_[static_cast<size_t>(output.choice)].decoder;
  for (const SampledToken& token : output.tokens) {
    if (reply_->done(output.choice)) return;
    ++n_tokens_;
    const Result<std::string> text = decoder.push(token.id);
    FATHOM_CHECK(text.has_value());  // only ids that the tokenizer knows are drawn
    const LoggedToken log = logs_ ? logged(token) : LoggedToken();
    append(events, reply_->feed(output.choice,
                                {.text = *text, .n_tokens = 1, .logged = logs_ ? &log : nullptr}));
  }
}

ReplyEvents ChatJob::take(const Output& output) {
  ReplyEvents events;
  if (ended()) return events;
  if (output.finish == EndReason::kError) {
    failure_ = output.error;
    return events;
  }
  if (output.choice == 0 || !begun_) prompt_usage_ = output.usage;
  if (!begun_) {
    n_skipped_ = prompt_usage_.skipped_tokens();
    append(&events, reply_->begin(usage()));
  }
  begun_ = true;
  if (output.prompt) reply_->prompt(logged_prompt(*output.prompt));
  feed(output, &events);
  if (output.finish == EndReason::kNone) return events;
  Lane& lane = lanes_[static_cast<size_t>(output.choice)];
  lane.ended = true;
  ++n_ended_;
  if (!reply_->done(output.choice)) {
    const std::string rest = lane.decoder.flush();
    append(&events, reply_->feed(output.choice, {.text = rest}));
  }
  append(&events, reply_->finish(output.choice, reason_of(output), usage()));
  return events;
}

ReplyUsage ChatJob::usage() const {
  const bool bounded = !prompt_usage_.exact;
  const bool replayed = prompt_usage_.replayed_tokens > 0;
  return {.prompt_tokens = n_prompt_,
          .cached_tokens = n_skipped_,
          .completion_tokens = n_tokens_,
          .restore = bounded    ? "bounded"
                     : replayed ? "exact"
                                : "none",
          .replayed_tokens = prompt_usage_.replayed_tokens};
}

}  // namespace fathom
