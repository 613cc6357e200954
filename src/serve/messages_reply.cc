#include "serve/messages_reply.h"

#include "serve/json_shapes.h"
#include "text/json_output.h"

namespace fathom {
namespace {

namespace json = boost::json;

ReplyEvent event(const char* type, json::object members) {
  json::object body = {{"type", type}};
  for (auto& member : members) body[member.key()] = std::move(member.value());
  return {type, json_output(body)};
}

// What was read from the cache is not among the input tokens.
json::object messages_usage(const ReplyUsage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens},
          {"service_tier", "standard"}};
}

json::value stop_reason(const ParsedOutput& said, bool stop_text) {
  if (stop_text && said.finish_reason == FinishReason::kStop) return "stop_sequence";
  switch (said.finish_reason) {
    case FinishReason::kStop:
      return "end_turn";
    case FinishReason::kLength:
      return "max_tokens";
    case FinishReason::kContentFilter:
      return "refusal";
    case FinishReason::kToolCalls:
      return "tool_use";
  }
  return nullptr;
}

json::value text_or_null(const std::optional<std::string>& text) {
  return text ? json::value(*text) : json::value();
}

// The arguments as a value; those that were cut short are an object of what can be said: nothing.
json::value input_value(const std::string& arguments) {
  const Result<Json> parsed = parse_json(arguments);
  if (!parsed || parsed->as_object() == nullptr) return json::object();
  return boost_json(*parsed);
}

}  // namespace

MessagesReply::MessagesReply(ReplyHead head, const ChatCall& call)
    : ConversationReply(std::move(head), call) {}

ReplyEvents MessagesReply::begin(const ReplyUsage& usage) {
  json::object message = {{"id", head().id},          {"type", "message"},
                          {"role", "assistant"},      {"model", head().model},
                          {"content", json::array()}, {"stop_reason", nullptr},
                          {"stop_sequence", nullptr}, {"usage", messages_usage(usage)}};
  ReplyEvents events = {event("message_start", {{"message", std::move(message)}})};
  if (thinking()) open_block(Block::kThinking, nullptr, &events);
  return events;
}

void MessagesReply::open_block(Block block, const OutputDelta* call, ReplyEvents* events) {
  close_block(events);
  json::object content;
  if (block == Block::kThinking) {
    content = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
  } else if (block == Block::kText) {
    content = {{"type", "text"}, {"text", ""}};
  } else {
    content = {{"type", "tool_use"},
               {"id", call_id(call->call)},
               {"name", call->text},
               {"input", json::object()}};
  }
  block_ = block;
  events->push_back(
      event("content_block_start", {{"index", n_blocks_}, {"content_block", std::move(content)}}));
  if (n_blocks_++ == 0) events->push_back(event("ping", {}));
}

void MessagesReply::close_block(ReplyEvents* events) {
  if (block_ == Block::kNone) return;
  const int64_t index = n_blocks_ - 1;
  if (block_ == Block::kThinking) {
    json::object delta = {{"type", "signature_delta"}, {"signature", head().id}};
    events->push_back(
        event("content_block_delta", {{"index", index}, {"delta", std::move(delta)}}));
  }
  events->push_back(event("content_block_stop", {{"index", index}}));
  block_ = Block::kNone;
}

void MessagesReply::add_delta(const OutputDelta& delta, std::vector<LoggedToken> /*tokens*/,
                              ReplyEvents* events) {
  using enum OutputDelta::Kind;
  if (delta.kind == kCallStart) return open_block(Block::kToolUse, &delta, events);
  json::object out;
  if (delta.kind == kReasoning) {
    out = {{"type", "thinking_delta"}, {"thinking", delta.text}};
  } else if (delta.kind == kContent) {
    if (block_ != Block::kText) open_block(Block::kText, nullptr, events);
    out = {{"type", "text_delta"}, {"text", delta.text}};
  } else {
    out = {{"type", "input_json_delta"}, {"partial_json", delta.text}};
  }
  events->push_back(
      event("content_block_delta", {{"index", n_blocks_ - 1}, {"delta", std::move(out)}}));
}

void MessagesReply::add_end(ReplyEvents* events) {
  close_block(events);
  json::object delta = {{"stop_reason", stop_reason(said(), stopped_by().has_value())},
                        {"stop_sequence", text_or_null(stopped_by())}};
  json::object last = {{"delta", std::move(delta)}, {"usage", messages_usage(usage())}};
  add_own(last, head(), usage(), thinking() ? json::value(effort()) : json::value());
  events->push_back(event("message_delta", std::move(last)));
  events->push_back(event("message_stop", {}));
}

ReplyEvent MessagesReply::fail(const std::string& message) {
  return {"error", messages_error_body(500, message)};
}

std::string MessagesReply::whole() const {
  json::array content;
  if (thinking()) {
    content.push_back({{"type", "thinking"},
                       {"thinking", said().reasoning.value_or("")},
                       {"signature", head().id}});
  }
  if (!said().content.empty()) content.push_back({{"type", "text"}, {"text", said().content}});
  for (size_t i = 0; i < said().tool_calls.size(); ++i) {
    const ParsedCall& call = said().tool_calls[i];
    content.push_back({{"type", "tool_use"},
                       {"id", call_id(i)},
                       {"name", call.name},
                       {"input", input_value(call.arguments)}});
  }
  json::object body = {{"id", head().id},
                       {"type", "message"},
                       {"role", "assistant"},
                       {"model", head().model},
                       {"content", std::move(content)},
                       {"stop_reason", stop_reason(said(), stopped_by().has_value())},
                       {"stop_sequence", text_or_null(stopped_by())},
                       {"usage", messages_usage(usage())}};
  add_own(body, head(), usage(), thinking() ? json::value(effort()) : json::value());
  return json_output(body);
}

std::string messages_error_body(int status, const std::string& message) {
  const char* type = status == 401   ? "authentication_error"
                     : status == 403 ? "permission_error"
                     : status == 404 ? "not_found_error"
                     : status == 413 ? "request_too_large"
                     : status == 429 ? "rate_limit_error"
                     : status == 503 ? "overloaded_error"
                     : status >= 500 ? "api_error"
                                     : "invalid_request_error";
  return json_output(
      json::object{{"type", "error"}, {"error", {{"type", type}, {"message", message}}}});
}

}  // namespace fathom
