#pragma once

// The answer to a call of OpenAI's Responses: events of a stream, or one body. Source: spec/api.md
// section 6; order and contents of events as in tests/golden/chat/streams.jsonl.

#include <boost/json.hpp>

#include "serve/conversation_reply.h"
#include "serve/custom_input.h"
#include "serve/responses_call.h"

namespace fathom {

class ResponsesReply final : public ConversationReply {
 public:
  ResponsesReply(ReplyHead head, const ResponsesCall& call);

  ReplyEvents open() override;
  ReplyEvent fail(const std::string& message) override;
  std::string whole() const override;

 private:
  enum class Kind : uint8_t { kReasoning, kMessage, kFunction, kCustom };
  // An output item while it grows.
  struct Item {
    Kind kind = Kind::kReasoning;
    std::string id;
    std::string call_id;
    std::string name;
    std::string space;  // the namespace of a function; empty: none
    std::string text;   // reasoning, content, arguments or input so far
    std::vector<LoggedToken> tokens;
    CustomInput input;
  };

  void add_delta(const OutputDelta& delta, std::vector<LoggedToken> tokens,
                 ReplyEvents* events) override;
  void add_end(ReplyEvents* events) override;

  void open_item(Kind kind, const OutputDelta& delta, ReplyEvents* events);
  void close_item(const char* status, bool before_call, ReplyEvents* events);
  void add_text(const std::string& text, std::vector<LoggedToken> tokens, ReplyEvents* events);
  boost::json::object item_json(const Item& item, const char* status, bool commentary) const;
  boost::json::object part_json(const Item& item, bool whole) const;
  boost::json::object response(const char* status) const;
  boost::json::object ended() const;
  ReplyEvent event(const std::string& type, boost::json::object members);
  const char* status() const;

  boost::json::object echo_;
  std::map<std::string, std::pair<std::string, std::string>> namespaces_;
  std::set<std::string> custom_;
  std::optional<Item> item_;
  boost::json::array output_;
  int64_t sequence_ = 0;
  int64_t completed_at_ = 0;  // seconds since 1970
};

}  // namespace fathom
