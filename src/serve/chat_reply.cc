#include "serve/chat_reply.h"

#include <boost/json.hpp>

namespace fathom {
namespace {

namespace json = boost::json;

json::object usage_json(const ReplyUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"prompt_cache_hit_tokens", usage.cached_tokens},
          {"prompt_cache_miss_tokens", usage.prompt_tokens - usage.cached_tokens}};
}

void add_own(json::object& body, const ReplyUsage& usage, bool thinking, int effort) {
  if (usage.restore.empty()) return;
  body["fathom"] = {{"restore", usage.restore},
                    {"replayed_tokens", usage.replayed_tokens},
                    {"effort", thinking ? json::value(effort) : json::value()}};
}

json::object head_json(const ReplyHead& head, const char* object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", head.fingerprint}};
}

json::object chunk_json(const ReplyHead& head, json::object delta, json::value reason) {
  json::object body = head_json(head, "chat.completion.chunk");
  body["choices"] = json::array{json::object{{"index", 0},
                                             {"delta", std::move(delta)},
                                             {"logprobs", nullptr},
                                             {"finish_reason", std::move(reason)}}};
  body["usage"] = nullptr;
  return body;
}

json::object call_json(const ReplyHead& head, const ParsedCall& call, size_t i) {
  return {{"id", head.call_prefix + std::to_string(i)},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

}  // namespace

ChatReply::ChatReply(ReplyHead head, const ChatCall& call)
    : head_(std::move(head)),
      thinking_(call.request.thinking),
      effort_(call.request.effort),
      include_usage_(call.include_usage),
      parser_(output_settings(call.request)) {}

std::string ChatReply::first_chunk() const {
  json::object delta = {{"role", "assistant"}};
  if (thinking_) {
    delta["content"] = nullptr;
    delta["reasoning_content"] = "";
  } else {
    delta["content"] = "";
  }
  return json::serialize(chunk_json(head_, std::move(delta), nullptr));
}

std::vector<std::string> ChatReply::feed(std::string_view text) {
  return chunks(parser_.feed(text));
}

std::vector<std::string> ChatReply::chunks(const std::vector<OutputDelta>& deltas) {
  accumulate(&said_, deltas);
  std::vector<std::string> made;
  for (const OutputDelta& delta : deltas) made.push_back(chunk(delta));
  return made;
}

std::string ChatReply::chunk(const OutputDelta& delta) const {
  using enum OutputDelta::Kind;
  json::object out;
  if (delta.kind == kReasoning) {
    out = {{"content", nullptr}, {"reasoning_content", delta.text}};
  } else if (delta.kind == kContent) {
    out["content"] = delta.text;
    if (thinking_) out["reasoning_content"] = nullptr;
  } else if (delta.kind == kCallStart) {
    json::object call = {{"index", delta.call}};
    call["id"] = head_.call_prefix + std::to_string(delta.call);
    call["type"] = "function";
    call["function"] = json::object{{"name", delta.text}, {"arguments", ""}};
    out["tool_calls"] = json::array{std::move(call)};
  } else {
    out["tool_calls"] =
        json::array{json::object{{"index", delta.call}, {"function", {{"arguments", delta.text}}}}};
  }
  return json::serialize(chunk_json(head_, std::move(out), nullptr));
}

std::vector<std::string> ChatReply::finish(FinishReason reason, const ReplyUsage& usage) {
  std::vector<std::string> made = chunks(parser_.finish());
  said_.finish_reason = parser_.finish_reason(reason);
  usage_ = usage;
  json::object delta = {{"content", ""}};
  if (thinking_) delta["reasoning_content"] = nullptr;
  json::object last = chunk_json(head_, std::move(delta), finish_reason_name(said_.finish_reason));
  if (include_usage_) last["usage"] = usage_json(usage);
  add_own(last, usage, thinking_, effort_);
  made.push_back(json::serialize(last));
  return made;
}

std::string ChatReply::whole() const {
  json::object message = {{"role", "assistant"}, {"content", said_.content}};
  if (thinking_) message["reasoning_content"] = said_.reasoning.value_or("");
  if (!said_.tool_calls.empty()) {
    json::array calls;
    for (size_t i = 0; i < said_.tool_calls.size(); ++i) {
      calls.push_back(call_json(head_, said_.tool_calls[i], i));
    }
    message["tool_calls"] = std::move(calls);
  }
  json::object body = head_json(head_, "chat.completion");
  body["choices"] =
      json::array{json::object{{"index", 0},
                               {"message", std::move(message)},
                               {"logprobs", nullptr},
                               {"finish_reason", finish_reason_name(said_.finish_reason)}}};
  body["usage"] = usage_json(usage_);
  add_own(body, usage_, thinking_, effort_);
  return json::serialize(body);
}

std::string error_body(int status, const std::string& message) {
  const char* type = status == 429   ? "rate_limit_error"
                     : status >= 500 ? "server_error"
                                     : "invalid_request_error";
  return json::serialize(json::object{
      {"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", type}}}});
}

}  // namespace fathom
