#pragma once

// ConversationReply: what the replies of Chat Completions, Messages and Responses share. The
// model's text becomes deltas of reasoning, content and tool calls, and the tokens that made them.

#include "serve/chat_call.h"
#include "serve/reply.h"

namespace fathom {

class ConversationReply : public Reply {
 public:
  ReplyEvents feed(int64_t choice, const ReplyPiece& piece) final;
  bool done(int64_t /*choice*/) const final { return parser_.done(); }
  ReplyEvents finish(int64_t choice, FinishReason reason, const ReplyUsage& usage) final;

 protected:
  ConversationReply(ReplyHead head, const ChatCall& call);

  // `tokens` only with kReasoning and kContent, and only where they were asked for.
  virtual void add_delta(const OutputDelta& delta, std::vector<LoggedToken> tokens,
                         ReplyEvents* events) = 0;
  // said() and usage() are whole.
  virtual void add_end(ReplyEvents* events) = 0;

  const ReplyHead& head() const { return head_; }
  bool thinking() const { return thinking_; }
  int effort() const { return effort_; }
  bool logprobs() const { return logprobs_; }
  bool in_reasoning() const { return parser_.in_reasoning(); }
  const ParsedOutput& said() const { return said_; }
  const ReplyUsage& usage() const { return usage_; }
  const std::optional<std::string>& stopped_by() const { return parser_.stopped_by(); }
  std::string call_id(size_t call) const { return head_.call_prefix + std::to_string(call); }

 private:
  void add(const std::vector<OutputDelta>& deltas, ReplyEvents* events);

  ReplyHead head_;
  bool thinking_;
  int effort_;
  bool logprobs_;
  OutputParser parser_;
  ParsedOutput said_;
  ReplyUsage usage_;
  int64_t reasoning_tokens_ = 0;
  std::vector<LoggedToken> pending_;  // tokens whose text is not out yet
};

}  // namespace fathom
