#include "serve/completions_reply.h"

#include <algorithm>

#include "serve/chat_reply.h"
#include "serve/json_shapes.h"
#include "text/json_output.h"

namespace fathom {
namespace {

namespace json = boost::json;

size_t n_characters(std::string_view bytes) {
  return static_cast<size_t>(std::ranges::count_if(
      bytes, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }));
}

}  // namespace

CompletionsReply::CompletionsReply(ReplyHead head, const CompletionsCall& call, std::string echo)
    : head_(std::move(head)),
      include_usage_(call.include_usage),
      logprobs_(call.logprobs),
      prompt_logprobs_(call.prompt_logprobs),
      silent_(call.max_tokens == 0),
      echo_(std::move(echo)) {
  for (int64_t i = 0; i < call.n_choices; ++i) {
    choices_.push_back(Choice{.stop = StopText(call.stop),
                              .text = echo_,
                              .logged_characters = n_characters(echo_),
                              .pending = {},
                              .logged = {},
                              .offsets = {}});
  }
}

json::object CompletionsReply::chunk(int64_t index, const std::string& text, json::value logprobs,
                                     json::value reason) const {
  json::object body = head_json(head_, "text_completion");
  body["choices"] = json::array{json::object{{"text", text},
                                             {"index", index},
                                             {"logprobs", std::move(logprobs)},
                                             {"finish_reason", std::move(reason)}}};
  body["usage"] = nullptr;
  return body;
}

ReplyEvents CompletionsReply::open() {
  ReplyEvents events;
  if (echo_.empty()) return events;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const json::object said = chunk(static_cast<int64_t>(i), echo_, nullptr, nullptr);
    events.push_back({"", json_output(said)});
  }
  return events;
}

json::value CompletionsReply::logprobs_json(const Choice& choice, size_t first) const {
  if (!logprobs_) return nullptr;
  json::array tokens;
  json::array values;
  json::array top;
  json::array offsets;
  for (size_t i = first; i < choice.logged.size(); ++i) {
    const LoggedToken& token = choice.logged[i];
    tokens.emplace_back(token_text(token.bytes));
    values.emplace_back(token.logprob);
    json::object likely;
    for (const auto& [bytes, logprob] : token.top) likely[token_text(bytes)] = logprob;
    top.push_back(std::move(likely));
    offsets.emplace_back(choice.offsets[i]);
  }
  return json::object{{"tokens", std::move(tokens)},
                      {"token_logprobs", std::move(values)},
                      {"top_logprobs", std::move(top)},
                      {"text_offset", std::move(offsets)}};
}

// The tokens of the prompt ahead of those of an answer.
void CompletionsReply::add_echoed(json::object& logged) const {
  json::array tokens;
  json::array values;
  json::array top;
  json::array offsets;
  size_t n_bytes = 0;
  for (const LoggedPromptToken& token : prompt_) n_bytes += token.said.bytes.size();
  // A text is echoed as it came, without the token that the server set before it.
  bool hidden = n_bytes > echo_.size();
  size_t offset = 0;
  for (const LoggedPromptToken& token : prompt_) {
    const bool foreseen = token.said.rank > 0;
    tokens.emplace_back(token_text(token.said.bytes));
    values.push_back(foreseen ? json::value(token.said.logprob) : nullptr);
    json::object likely;
    for (const RankedToken& one : token.top) {
      if (one.rank <= *logprobs_) likely[token_text(one.bytes)] = one.logprob;
    }
    top.push_back(foreseen ? json::value(std::move(likely)) : nullptr);
    offsets.emplace_back(offset);
    if (!std::exchange(hidden, false)) offset += n_characters(token.said.bytes);
  }
  for (const auto& [name, first] : {std::pair{"tokens", &tokens},
                                    {"token_logprobs", &values},
                                    {"top_logprobs", &top},
                                    {"text_offset", &offsets}}) {
    json::array& all = logged.at(name).as_array();
    all.insert(all.begin(), first->begin(), first->end());
  }
}

// As vLLM writes it: for each token what it was and the likely ones, by their ids.
json::array CompletionsReply::prompt_logprobs_json() const {
  json::array out;
  for (const LoggedPromptToken& token : prompt_) {
    if (token.said.rank == 0) {
      out.emplace_back(nullptr);
      continue;
    }
    json::object ids;
    const auto add = [&](const RankedToken& one) {
      ids[std::to_string(one.id)] = {
          {"logprob", one.logprob}, {"rank", one.rank}, {"decoded_token", token_text(one.bytes)}};
    };
    add(token.said);
    for (const RankedToken& one : token.top) {
      if (one.rank <= *prompt_logprobs_) add(one);
    }
    out.push_back(std::move(ids));
  }
  return out;
}

ReplyEvents CompletionsReply::say(int64_t index, const std::string& text, bool all) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  choice.text += text;
  choice.said_bytes += text.size();
  const size_t first = choice.logged.size();
  size_t n_out = 0;
  for (LoggedToken& token : choice.pending) {
    if (!all && choice.logged_bytes + token.bytes.size() > choice.said_bytes) break;
    choice.logged_bytes += token.bytes.size();
    choice.offsets.push_back(choice.logged_characters);
    choice.logged_characters += n_characters(token.bytes);
    choice.logged.push_back(std::move(token));
    ++n_out;
  }
  choice.pending.erase(choice.pending.begin(),
                       choice.pending.begin() + static_cast<ptrdiff_t>(n_out));
  if (text.empty() && n_out == 0) return {};
  return {{"", json_output(chunk(index, text, logprobs_json(choice, first), nullptr))}};
}

ReplyEvents CompletionsReply::feed(int64_t index, const ReplyPiece& piece) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (piece.logged != nullptr) choice.pending.push_back(*piece.logged);
  return say(index, choice.stop.push(piece.text), false);
}

bool CompletionsReply::done(int64_t index) const {
  return silent_ || choices_[static_cast<size_t>(index)].stop.stopped();
}

ReplyEvents CompletionsReply::finish(int64_t index, FinishReason reason, const ReplyUsage& usage) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  const bool stopped = choice.stop.stopped();
  ReplyEvents events;
  if (!stopped) events = say(index, choice.stop.flush(), true);
  choice.reason = stopped ? FinishReason::kStop : silent_ ? FinishReason::kLength : reason;
  usage_ = usage;
  const bool last = ++n_finished_ == static_cast<int64_t>(choices_.size());
  json::object end = chunk(index, "", nullptr, finish_reason_name(choice.reason));
  if (last) add_own(end, head_, usage_, nullptr);
  events.push_back({"", json_output(end)});
  if (last && include_usage_) {
    json::object body = head_json(head_, "text_completion");
    body["choices"] = json::array();
    body["usage"] = usage_json(usage_);
    events.push_back({"", json_output(body)});
  }
  return events;
}

ReplyEvent CompletionsReply::fail(const std::string& message) {
  return {"", error_body(500, message)};
}

std::string CompletionsReply::whole() const {
  json::array choices;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    json::value logged = logprobs_json(choice, 0);
    if (logprobs_ && !echo_.empty()) add_echoed(logged.as_object());
    json::object one = {{"text", choice.text},
                        {"index", i},
                        {"logprobs", std::move(logged)},
                        {"finish_reason", finish_reason_name(choice.reason)}};
    if (prompt_logprobs_) one["prompt_logprobs"] = prompt_logprobs_json();
    choices.push_back(std::move(one));
  }
  json::object body = head_json(head_, "text_completion");
  body["choices"] = std::move(choices);
  body["usage"] = usage_json(usage_);
  add_own(body, head_, usage_, nullptr);
  return json_output(body);
}

}  // namespace fathom
