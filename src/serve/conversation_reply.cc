#include "serve/conversation_reply.h"

#include <utility>

namespace fathom {

ConversationReply::ConversationReply(ReplyHead head, const ChatCall& call)
    : head_(std::move(head)),
      thinking_(call.request.thinking),
      effort_(call.request.effort),
      logprobs_(call.logprobs),
      parser_(output_settings(call.request)) {}

ReplyEvents ConversationReply::feed(int64_t /*choice*/, const ReplyPiece& piece) {
  if (piece.logged != nullptr) pending_.push_back(*piece.logged);
  ReplyEvents events;
  add(parser_.feed(piece.text), &events);
  if (parser_.in_reasoning()) reasoning_tokens_ += piece.n_tokens;
  // Tokens whose text became neither reasoning nor content, such as markers, belong to nothing.
  if (!piece.text.empty() && !parser_.holds()) pending_.clear();
  return events;
}

ReplyEvents ConversationReply::finish(int64_t /*choice*/, FinishReason reason,
                                      const ReplyUsage& usage) {
  ReplyEvents events;
  add(parser_.finish(), &events);
  said_.finish_reason = parser_.finish_reason(reason);
  usage_ = usage;
  usage_.reasoning_tokens = reasoning_tokens_;
  add_end(&events);
  return events;
}

void ConversationReply::add(const std::vector<OutputDelta>& deltas, ReplyEvents* events) {
  accumulate(&said_, deltas);
  for (const OutputDelta& delta : deltas) {
    add_delta(delta, std::exchange(pending_, {}), events);
  }
}

}  // namespace fathom
