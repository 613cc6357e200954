#pragma once

// The answer to a chat call in the shapes of Chat Completions: chunks of a stream, or one body.
// Source: spec/api.md section 2; order and contents of chunks as in
// tests/golden/chat/streams.jsonl.

#include "serve/conversation_reply.h"

namespace fathom {

class ChatReply final : public ConversationReply {
 public:
  ChatReply(ReplyHead head, const ChatCall& call);

  ReplyEvents open() override;
  ReplyEvent fail(const std::string& message) override;
  std::string_view end_data() const override { return "[DONE]"; }
  std::string whole() const override;

 private:
  void add_delta(const OutputDelta& delta, std::vector<LoggedToken> tokens,
                 ReplyEvents* events) override;
  void add_end(ReplyEvents* events) override;

  bool include_usage_;
  bool reasons_;  // the answer begins in the reasoning
  std::vector<LoggedToken> reasoning_tokens_;
  std::vector<LoggedToken> content_tokens_;
};

// {"error": {...}} of all OpenAI protocols, with the type and code that go with the status.
std::string error_body(int status, const std::string& message);

}  // namespace fathom
