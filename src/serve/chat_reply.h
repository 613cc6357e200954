#pragma once

// The answer to a chat call in the shapes of Chat Completions: chunks of a stream, or one body.
// Source: spec/api.md section 2; order and contents of chunks as in
// tests/golden/chat/streams.jsonl.
//
// Thread rule: one reply, one thread.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/chat_call.h"
#include "text/output_parser.h"

namespace fathom {

struct ReplyHead {
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;
  std::string call_prefix = "call_";  // ids of tool calls: this, then their number
};

struct ReplyUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  // What fathom adds, in a member of its name; not written where `restore` is empty.
  std::string restore;  // "none" where nothing was replayed, "exact" or "bounded"
  int64_t replayed_tokens = 0;
};

class ChatReply {
 public:
  ChatReply(ReplyHead head, const ChatCall& call);

  // JSON of the chunk that goes ahead of all.
  std::string first_chunk() const;
  // JSON of the chunks that more of the answer's text makes.
  std::vector<std::string> feed(std::string_view text);
  // Nothing more will be said whatever the model adds: the engine may stop.
  bool done() const { return parser_.done(); }
  // JSON of the last chunks.
  std::vector<std::string> finish(FinishReason reason, const ReplyUsage& usage);

  // JSON of the whole answer, after finish().
  std::string whole() const;

 private:
  std::vector<std::string> chunks(const std::vector<OutputDelta>& deltas);
  std::string chunk(const OutputDelta& delta) const;

  ReplyHead head_;
  bool thinking_;
  int effort_;
  bool include_usage_;
  OutputParser parser_;
  ParsedOutput said_;
  ReplyUsage usage_;
};

// {"error": {...}} with the type and code that go with the status.
std::string error_body(int status, const std::string& message);

}  // namespace fathom
