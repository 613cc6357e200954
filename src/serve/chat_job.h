#pragma once

// ChatJob: one chat call on its way through the engine: its prompt as a request, and the engine's
// tokens as chunks of the answer. ChatService makes jobs for the model that is served.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/load.h"
#include "engine/request.h"
#include "serve/chat_reply.h"
#include "text/chat_template.h"
#include "text/stream_decoder.h"

namespace fathom {

class ChatJob {
 public:
  ChatJob(ReplyHead head, ChatCall call, const Tokenizer& tokenizer);

  bool stream() const { return call_.stream; }
  const ChatReply& reply() const { return reply_; }
  // What goes to the engine; once.
  Request take_request() { return std::move(request_); }

  // JSON of the chunks that the output makes, the last ones where it is the last.
  std::vector<std::string> take(const Output& output);
  bool ended() const { return ended_; }
  // Nothing more will be said: the engine may be told to stop.
  bool said_all() const { return reply_.done(); }
  // One line, where the engine lost the request.
  const std::optional<std::string>& failure() const { return failure_; }

 private:
  friend class ChatService;

  void feed(const Output& output, std::vector<std::string>* chunks);
  ReplyUsage usage_of(const Output& output) const;

  ChatCall call_;
  ChatReply reply_;
  StreamDecoder decoder_;
  Request request_;
  int64_t n_tokens_ = 0;
  bool ended_ = false;
  std::optional<std::string> failure_;
};

struct ServiceOptions {
  std::string model_name;
  std::string fingerprint;
  int64_t context = 0;
  RestoreGrade restore = RestoreGrade::kBounded;  // where a call names none
};

// Thread rule: one thread.
class ChatService {
 public:
  // The model outlives the service; it has a tokenizer.
  ChatService(const LoadedModel& loaded, ChatTemplate chat, ServiceOptions options);

  const ServiceOptions& options() const { return options_; }
  // kInvalid: the call is refused with status 400.
  Result<std::unique_ptr<ChatJob>> begin(std::string_view body);

 private:
  const LoadedModel& loaded_;
  ChatTemplate chat_;
  const ServiceOptions options_;
  uint64_t salt_ = 0;  // of ids and of seeds that no call gave
  uint64_t n_jobs_ = 0;
};

}  // namespace fathom
