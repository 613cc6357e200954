#pragma once

// Reply: the answers to one call on their way into the shapes of its protocol, as events of a
// stream or as one body. It is told what the model says and knows nothing of engine or transport.
//
// In order: open(), begin(), then feed() and one finish() for each choice; prompt(), where it was
// asked for, ahead of the first feed() of choice 0; whole() after the last finish(). Thread rule:
// one reply, one thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/output_parser.h"

namespace fathom {

struct ReplyHead {
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;
  std::string call_prefix = "call_";     // ids of tool calls: this, then their number
  std::vector<std::string> passed_over;  // members of the body without effect
};

struct ReplyUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // of the prompt, that were not computed for this call
  int64_t completion_tokens = 0;  // of all choices
  int64_t reasoning_tokens = 0;   // among them
  // What fathom adds, in a member of its name; not written where `restore` is empty.
  std::string restore;  // "none" where nothing was replayed, "exact" or "bounded"
  int64_t replayed_tokens = 0;
};

// An event of a stream; where the protocol names none, `name` is empty.
struct ReplyEvent {
  std::string name;
  std::string data;
};
using ReplyEvents = std::vector<ReplyEvent>;

// A token of the answer as a client that asked for log probabilities is told of it.
struct LoggedToken {
  std::string bytes;
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top;  // bytes and log probability, likelier first
};

// A token as a client that asked for log probabilities of its prompt is told of it.
struct RankedToken {
  int32_t id = 0;
  std::string bytes;
  float logprob = 0;
  int64_t rank = 0;  // among all tokens, from 1; 0: nothing foresaw it, as the first of a prompt
};
struct LoggedPromptToken {
  RankedToken said;
  std::vector<RankedToken> top;  // likelier first
};

// More of an answer. Without `logged` no log probabilities were asked for, or none belong to it.
struct ReplyPiece {
  std::string_view text;
  int64_t n_tokens = 0;
  const LoggedToken* logged = nullptr;
};

class Reply {
 public:
  virtual ~Reply() = default;

  // Ahead of all.
  virtual ReplyEvents open() { return {}; }
  // The prompt was computed; prompt_tokens and cached_tokens are known.
  virtual ReplyEvents begin(const ReplyUsage& /*usage*/) { return {}; }
  // What the model says of the whole prompt. Not for streams.
  virtual void prompt(std::vector<LoggedPromptToken> /*tokens*/) {}  // NOLINT: kept by some
  virtual ReplyEvents feed(int64_t choice, const ReplyPiece& piece) = 0;
  // Nothing more will be said in the choice, whatever the model adds.
  virtual bool done(int64_t choice) const = 0;
  // The usage counts what was fed so far, in all choices.
  virtual ReplyEvents finish(int64_t choice, FinishReason reason, const ReplyUsage& usage) = 0;
  // The engine lost the call: the last event in place of finish(). One line.
  virtual ReplyEvent fail(const std::string& message) = 0;
  // What a stream ends with, after its last event; empty: nothing.
  virtual std::string_view end_data() const { return {}; }

  // JSON of the whole answer.
  virtual std::string whole() const = 0;
};

}  // namespace fathom
