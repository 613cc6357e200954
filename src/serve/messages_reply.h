#pragma once

// The answer to a call of Anthropic's Messages: events of a stream, or one body. Source:
// spec/api.md section 5; order and contents of events as in tests/golden/chat/streams.jsonl.

#include "serve/conversation_reply.h"

namespace fathom {

class MessagesReply final : public ConversationReply {
 public:
  MessagesReply(ReplyHead head, const ChatCall& call);

  ReplyEvents begin(const ReplyUsage& usage) override;
  ReplyEvent fail(const std::string& message) override;
  std::string whole() const override;

 private:
  enum class Block : uint8_t { kNone, kThinking, kText, kToolUse };

  void add_delta(const OutputDelta& delta, std::vector<LoggedToken> tokens,
                 ReplyEvents* events) override;
  void add_end(ReplyEvents* events) override;
  void open_block(Block block, const OutputDelta* call, ReplyEvents* events);
  void close_block(ReplyEvents* events);

  Block block_ = Block::kNone;
  int64_t n_blocks_ = 0;
};

// {"type": "error", "error": {"type", "message"}}, the type by the status.
std::string messages_error_body(int status, const std::string& message);

}  // namespace fathom
