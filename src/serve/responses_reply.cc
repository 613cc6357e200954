#include "serve/responses_reply.h"

#include <ctime>
#include <tuple>
#include <utility>

#include "serve/json_shapes.h"
#include "text/json_output.h"

namespace fathom {
namespace {

namespace json = boost::json;

json::object responses_usage(const ReplyUsage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

const char* incomplete_reason(FinishReason reason) {
  return reason == FinishReason::kLength ? "max_output_tokens" : "content_filter";
}

}  // namespace

ResponsesReply::ResponsesReply(ReplyHead head, const ResponsesCall& call)
    : ConversationReply(std::move(head), call.chat),
      echo_(call.echo),
      namespaces_(call.namespaces),
      custom_(call.custom) {}

ReplyEvent ResponsesReply::event(const std::string& type, json::object members) {
  json::object body = {{"type", type}};
  for (auto& member : members) body[member.key()] = std::move(member.value());
  body["sequence_number"] = sequence_++;
  return {type, json_output(body)};
}

json::object ResponsesReply::response(const char* status) const {
  json::object body = {{"id", head().id},
                       {"object", "response"},
                       {"created_at", head().created},
                       {"status", status}};
  for (const auto& member : echo_) body[member.key()] = member.value();
  body["model"] = head().model;
  body["output"] = output_;
  return body;
}

ReplyEvents ResponsesReply::open() {
  ReplyEvents events;
  events.push_back(event("response.created", {{"response", response("in_progress")}}));
  events.push_back(event("response.in_progress", {{"response", response("in_progress")}}));
  return events;
}

json::object ResponsesReply::part_json(const Item& item, bool whole) const {
  const json::string text(whole ? item.text : std::string());
  if (item.kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"annotations", json::array()},
          {"logprobs", whole ? logged_json(item.tokens) : json::array()},
          {"text", text}};
}

json::object ResponsesReply::item_json(const Item& item, const char* status,
                                       bool commentary) const {
  const bool open = status == std::string_view("in_progress");
  json::array content;
  if (!open) content.push_back(part_json(item, true));
  const std::string text = open ? "" : item.text;
  switch (item.kind) {
    case Kind::kReasoning:
      return {{"type", "reasoning"},
              {"id", item.id},
              {"status", status},
              {"content", std::move(content)},
              {"summary", json::array()},
              {"encrypted_content", head().id + "-" + std::to_string(output_.size())}};
    case Kind::kMessage:
      return {{"type", "message"},
              {"id", item.id},
              {"status", status},
              {"role", "assistant"},
              {"phase", commentary ? "commentary" : "final_answer"},
              {"content", std::move(content)}};
    case Kind::kFunction: {
      json::object body = {{"type", "function_call"}, {"id", item.id},     {"status", status},
                           {"call_id", item.call_id}, {"name", item.name}, {"arguments", text}};
      if (!item.space.empty()) body["namespace"] = item.space;
      return body;
    }
    case Kind::kCustom:
      return {{"type", "custom_tool_call"}, {"id", item.id},     {"status", status},
              {"call_id", item.call_id},    {"name", item.name}, {"input", text}};
  }
  return {};
}

void ResponsesReply::open_item(Kind kind, const OutputDelta& delta, ReplyEvents* events) {
  const bool call = kind == Kind::kFunction || kind == Kind::kCustom;
  if (item_) close_item("completed", call, events);
  constexpr const char* kPrefixes[] = {"rs_", "msg_", "fc_", "ctc_"};
  const std::string number = std::to_string(output_.size());
  item_ = Item{.kind = kind, .id = kPrefixes[static_cast<size_t>(kind)] + head().id + "_" + number};
  if (call) {
    item_->call_id = call_id(delta.call);
    item_->name = delta.text;
    const auto space = namespaces_.find(delta.text);
    if (space != namespaces_.end()) std::tie(item_->space, item_->name) = space->second;
  }
  events->push_back(
      event("response.output_item.added",
            {{"item", item_json(*item_, "in_progress", false)}, {"output_index", output_.size()}}));
  if (call) return;
  events->push_back(event("response.content_part.added", {{"content_index", 0},
                                                          {"item_id", item_->id},
                                                          {"output_index", output_.size()},
                                                          {"part", part_json(*item_, false)}}));
}

void ResponsesReply::add_text(const std::string& text, std::vector<LoggedToken> tokens,
                              ReplyEvents* events) {
  constexpr const char* kTypes[] = {"response.reasoning_text.delta", "response.output_text.delta",
                                    "response.function_call_arguments.delta",
                                    "response.custom_tool_call_input.delta"};
  item_->text += text;
  json::object body = {{"delta", text}, {"item_id", item_->id}, {"output_index", output_.size()}};
  const bool message = item_->kind == Kind::kMessage;
  if (message || item_->kind == Kind::kReasoning) body["content_index"] = 0;
  if (message) {
    body["logprobs"] = logged_json(tokens);
    item_->tokens.insert(item_->tokens.end(), tokens.begin(), tokens.end());
  }
  events->push_back(event(kTypes[static_cast<size_t>(item_->kind)], std::move(body)));
}

void ResponsesReply::add_delta(const OutputDelta& delta, std::vector<LoggedToken> tokens,
                               ReplyEvents* events) {
  using enum OutputDelta::Kind;
  if (delta.kind == kCallStart) {
    const bool custom = custom_.count(delta.text) > 0;
    return open_item(custom ? Kind::kCustom : Kind::kFunction, delta, events);
  }
  if (delta.kind == kArguments) {
    const std::string text =
        item_->kind == Kind::kCustom ? item_->input.push(delta.text) : delta.text;
    if (!text.empty()) add_text(text, {}, events);
    return;
  }
  const Kind kind = delta.kind == kReasoning ? Kind::kReasoning : Kind::kMessage;
  if (!item_ || item_->kind != kind) open_item(kind, delta, events);
  add_text(delta.text, std::move(tokens), events);
}

void ResponsesReply::close_item(const char* status, bool before_call, ReplyEvents* events) {
  if (item_->kind == Kind::kCustom) {
    const std::string rest = item_->input.flush();
    if (!rest.empty()) add_text(rest, {}, events);
  }
  json::object done = {{"item_id", item_->id}, {"output_index", output_.size()}};
  switch (item_->kind) {
    case Kind::kFunction:
      done["arguments"] = item_->text;
      events->push_back(event("response.function_call_arguments.done", std::move(done)));
      break;
    case Kind::kCustom:
      done["input"] = item_->text;
      events->push_back(event("response.custom_tool_call_input.done", std::move(done)));
      break;
    case Kind::kReasoning:
    case Kind::kMessage: {
      const bool message = item_->kind == Kind::kMessage;
      done["content_index"] = 0;
      json::object part = done;
      if (message) done["logprobs"] = logged_json(item_->tokens);
      done["text"] = item_->text;
      part["part"] = part_json(*item_, true);
      events->push_back(event(
          message ? "response.output_text.done" : "response.reasoning_text.done", std::move(done)));
      events->push_back(event("response.content_part.done", std::move(part)));
      break;
    }
  }
  json::object item = item_json(*item_, status, before_call);
  events->push_back(
      event("response.output_item.done", {{"item", item}, {"output_index", output_.size()}}));
  output_.push_back(std::move(item));
  item_.reset();
}

const char* ResponsesReply::status() const {
  const bool cut = said().finish_reason == FinishReason::kLength ||
                   said().finish_reason == FinishReason::kContentFilter;
  return cut ? "incomplete" : "completed";
}

void ResponsesReply::add_end(ReplyEvents* events) {
  if (item_) close_item(status(), false, events);
  completed_at_ = static_cast<int64_t>(std::time(nullptr));
  events->push_back(event(std::string("response.") + status(), {{"response", ended()}}));
}

ReplyEvent ResponsesReply::fail(const std::string& message) {
  json::object body = response("failed");
  body["error"] = {{"code", "server_error"}, {"message", message}};
  return event("response.failed", {{"response", std::move(body)}});
}

json::object ResponsesReply::ended() const {
  json::object body = response(status());
  body["completed_at"] = completed_at_;
  if (status() == std::string_view("incomplete")) {
    body["incomplete_details"] = {{"reason", incomplete_reason(said().finish_reason)}};
  }
  body["usage"] = responses_usage(usage());
  add_own(body, head(), usage(), thinking() ? json::value(effort()) : json::value());
  return body;
}

std::string ResponsesReply::whole() const { return json_output(ended()); }

}  // namespace fathom
