#pragma once

// The answers to a call of Completions: chunks of a stream, or one body. Choices come as they are
// made, interleaved in a stream.

#include <boost/json.hpp>
#include <optional>
#include <vector>

#include "engine/stop_text.h"
#include "serve/completions_call.h"
#include "serve/reply.h"

namespace fathom {

class CompletionsReply final : public Reply {
 public:
  // `echo` is what stands before each answer, usually nothing.
  CompletionsReply(ReplyHead head, const CompletionsCall& call, std::string echo);

  ReplyEvents open() override;
  void prompt(std::vector<LoggedPromptToken> tokens) override { prompt_ = std::move(tokens); }
  ReplyEvents feed(int64_t choice, const ReplyPiece& piece) override;
  bool done(int64_t choice) const override;
  ReplyEvents finish(int64_t choice, FinishReason reason, const ReplyUsage& usage) override;
  ReplyEvent fail(const std::string& message) override;
  std::string_view end_data() const override { return "[DONE]"; }
  std::string whole() const override;

 private:
  struct Choice {
    StopText stop;
    std::string text;                  // with the echo
    size_t said_bytes = 0;             // of the answer
    size_t logged_bytes = 0;           // of tokens that were logged
    size_t logged_characters = 0;      // with the echo
    std::vector<LoggedToken> pending;  // whose text is not out yet
    std::vector<LoggedToken> logged;
    std::vector<size_t> offsets;  // where the text of each logged token begins
    FinishReason reason = FinishReason::kStop;
  };

  // The chunk that more text makes; `all`: what is pending goes with it.
  ReplyEvents say(int64_t index, const std::string& text, bool all);
  void add_echoed(boost::json::object& logged) const;
  boost::json::array prompt_logprobs_json() const;
  // Of the tokens from `first` on.
  boost::json::value logprobs_json(const Choice& choice, size_t first) const;
  boost::json::object chunk(int64_t index, const std::string& text, boost::json::value logprobs,
                            boost::json::value reason) const;

  ReplyHead head_;
  bool include_usage_;
  std::optional<int64_t> logprobs_;
  std::optional<int64_t> prompt_logprobs_;
  bool silent_;  // nothing but what is told of the prompt
  std::string echo_;
  std::vector<LoggedPromptToken> prompt_;
  std::vector<Choice> choices_;
  int64_t n_finished_ = 0;
  ReplyUsage usage_;
};

}  // namespace fathom
