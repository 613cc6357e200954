#include "serve/chat_reply.h"

#include "serve/json_shapes.h"
#include "text/json_output.h"

namespace fathom {
namespace {

namespace json = boost::json;

json::object chunk_json(const ReplyHead& head, json::object delta, json::value reason,
                        json::value logprobs = nullptr) {
  json::object body = head_json(head, "chat.completion.chunk");
  body["choices"] = json::array{json::object{{"index", 0},
                                             {"delta", std::move(delta)},
                                             {"logprobs", std::move(logprobs)},
                                             {"finish_reason", std::move(reason)}}};
  body["usage"] = nullptr;
  return body;
}

void append(std::vector<LoggedToken>* to, const std::vector<LoggedToken>& tokens) {
  to->insert(to->end(), tokens.begin(), tokens.end());
}

}  // namespace

ChatReply::ChatReply(ReplyHead head, const ChatCall& call)
    : ConversationReply(std::move(head), call),
      include_usage_(call.include_usage),
      reasons_(in_reasoning()) {}

ReplyEvents ChatReply::open() {
  json::object delta = {{"role", "assistant"}};
  if (reasons_) {
    delta["content"] = nullptr;
    delta["reasoning_content"] = "";
  } else {  // a continued prefix with thinking goes on behind its reasoning
    delta["content"] = "";
    if (thinking()) delta["reasoning_content"] = nullptr;
  }
  return {{"", json_output(chunk_json(head(), std::move(delta), nullptr))}};
}

void ChatReply::add_delta(const OutputDelta& delta, std::vector<LoggedToken> tokens,
                          ReplyEvents* events) {
  using enum OutputDelta::Kind;
  json::object out;
  json::value logprobs;
  if (delta.kind == kReasoning) {
    out = {{"content", nullptr}, {"reasoning_content", delta.text}};
    if (!tokens.empty()) logprobs = {{"reasoning_content", logged_json(tokens)}};
    append(&reasoning_tokens_, tokens);
  } else if (delta.kind == kContent) {
    out["content"] = delta.text;
    if (thinking()) out["reasoning_content"] = nullptr;
    if (!tokens.empty()) logprobs = {{"content", logged_json(tokens)}};
    append(&content_tokens_, tokens);
  } else if (delta.kind == kCallStart) {
    json::object call = {{"index", delta.call}};
    call["id"] = call_id(delta.call);
    call["type"] = "function";
    call["function"] = json::object{{"name", delta.text}, {"arguments", ""}};
    out["tool_calls"] = json::array{std::move(call)};
  } else {
    out["tool_calls"] =
        json::array{json::object{{"index", delta.call}, {"function", {{"arguments", delta.text}}}}};
  }
  events->push_back(
      {"", json_output(chunk_json(head(), std::move(out), nullptr, std::move(logprobs)))});
}

void ChatReply::add_end(ReplyEvents* events) {
  json::object delta = {{"content", ""}};
  if (thinking()) delta["reasoning_content"] = nullptr;
  json::object last =
      chunk_json(head(), std::move(delta), finish_reason_name(said().finish_reason));
  if (include_usage_) last["usage"] = usage_json(usage());
  add_own(last, head(), usage(), thinking() ? json::value(effort()) : json::value());
  events->push_back({"", json_output(last)});
}

ReplyEvent ChatReply::fail(const std::string& message) { return {"", error_body(500, message)}; }

std::string ChatReply::whole() const {
  json::object message = {{"role", "assistant"}, {"content", said().content}};
  if (reasons_) message["reasoning_content"] = said().reasoning.value_or("");
  json::array calls;
  for (size_t i = 0; i < said().tool_calls.size(); ++i) {
    const ParsedCall& call = said().tool_calls[i];
    calls.push_back({{"id", call_id(i)},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  json::value logged;
  if (logprobs()) {
    logged = {{"content", logged_json(content_tokens_)}};
    if (reasons_) logged.as_object()["reasoning_content"] = logged_json(reasoning_tokens_);
  }
  json::object body = head_json(head(), "chat.completion");
  body["choices"] =
      json::array{json::object{{"index", 0},
                               {"message", std::move(message)},
                               {"logprobs", std::move(logged)},
                               {"finish_reason", finish_reason_name(said().finish_reason)}}};
  body["usage"] = usage_json(usage());
  add_own(body, head(), usage(), thinking() ? json::value(effort()) : json::value());
  return json_output(body);
}

std::string error_body(int status, const std::string& message) {
  const char* type = status == 429   ? "rate_limit_error"
                     : status >= 500 ? "server_error"
                                     : "invalid_request_error";
  const char* code = status == 401   ? "invalid_api_key"
                     : status == 403 ? "permission_denied"
                     : status == 404 ? "not_found"
                                     : type;
  return json_output(json::object{
      {"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", code}}}});
}

}  // namespace fathom
