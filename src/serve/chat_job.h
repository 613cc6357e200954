#pragma once

// ChatJob: one call on its way through the engine, whatever its protocol: its prompt as a request,
// and the engine's tokens as events of its reply. Thread rule: one thread.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "serve/reply.h"
#include "text/stream_decoder.h"

namespace fathom {

class ChatJob {
 public:
  // `logs`: the client asked for log probabilities.
  ChatJob(std::unique_ptr<Reply> reply, Request request, bool stream, bool logs,
          const Tokenizer& tokenizer);

  // Of its answer, as the client is told.
  const std::string& id() const { return id_; }
  void set_id(std::string id) { id_ = std::move(id); }
  bool stream() const { return stream_; }
  Reply& reply() { return *reply_; }
  // What goes to the engine; once.
  Request take_request() { return std::move(request_); }

  // The events that the output makes, the last ones where it is the last.
  ReplyEvents take(const Output& output);
  // The rest of the answer will not come.
  void lose(const std::string& why) { failure_ = why; }
  // Every choice has ended, or one was lost.
  bool ended() const { return failure_ || n_ended_ == lanes_.size(); }
  // Nothing more will be said: the engine may be told to stop.
  bool said_all() const;
  // One line, where the engine lost the request.
  const std::optional<std::string>& failure() const { return failure_; }

 private:
  struct Lane {
    StreamDecoder decoder;
    bool ended = false;
  };

  void feed(const Output& output, ReplyEvents* events);
  LoggedToken logged(const SampledToken& token) const;
  RankedToken ranked(const TokenLogprob& token, int64_t rank) const;
  std::vector<LoggedPromptToken> logged_prompt(const std::vector<PromptLogprob>& tokens) const;
  ReplyUsage usage() const;

  std::string id_;
  std::unique_ptr<Reply> reply_;
  Request request_;
  bool stream_;
  bool logs_;
  const Tokenizer& tokenizer_;
  std::vector<Lane> lanes_;  // of the choices
  size_t n_ended_ = 0;
  bool begun_ = false;
  Usage prompt_usage_;     // of the first choice, which the others share
  int64_t n_skipped_ = 0;  // of the prompt, told ahead of the answer and at its end alike
  int64_t n_prompt_ = 0;
  int32_t first_id_ = 0;  // of the prompt
  int64_t n_tokens_ = 0;
  std::optional<std::string> failure_;
};

}  // namespace fathom
