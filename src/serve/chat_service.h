#pragma once

// ChatService: bodies of calls become jobs for the model that is served.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/load.h"
#include "serve/chat_call.h"
#include "serve/chat_job.h"
#include "serve/completions_call.h"
#include "text/chat_template.h"

namespace fathom {

struct ServiceOptions {
  std::string model_name;
  std::string fingerprint;
  int64_t context = 0;
  RestoreGrade restore = RestoreGrade::kBounded;  // where a call names none
  int effort = kEffortHigh;                       // the same, 1 to 100; 0: without thinking
  int64_t n_choices_max = kMaxChoices;            // answers that are computed at once
};

// Where encoding a text ends, and for messages its name and how long it may be.
struct TokenBound {
  const char* field = "";
  int64_t n_max = 0;
  int64_t wanted = 0;
};

// Thread rule: its members may be called from several threads.
class ChatService {
 public:
  // The model outlives the service; it has a tokenizer.
  ChatService(const LoadedModel& loaded, ChatTemplate chat, ServiceOptions options);

  const ServiceOptions& options() const { return options_; }
  const LoadedModel& loaded() const { return loaded_; }
  int64_t created_s() const { return created_s_; }  // since 1970
  // kInvalid: the call is refused with status 400; kNotFound: with 404, another model is served.
  Result<std::unique_ptr<ChatJob>> begin(Protocol protocol, std::string_view body);

  // kNotFound unless the name is empty or that of the model.
  Result<void> check_model(const std::string& name) const;
  // Of what is counted or shown and not computed, which may be longer than the context.
  TokenBound counted(const char* field) const;
  // kInvalid, in time by the bound, where there are more ids.
  Result<std::vector<TokenId>> prompt_ids(const ChatRequest& request, const TokenBound& bound,
                                          bool generation = true) const;
  Result<std::vector<TokenId>> text_ids(const std::string& text, bool raw_prompt,
                                        const TokenBound& bound) const;

 private:
  TokenBound prompt_bound(const char* field) const;
  Result<std::unique_ptr<ChatJob>> begin_completions(std::string_view body);
  using MakeReply = std::function<std::unique_ptr<Reply>(ReplyHead)>;
  Result<std::unique_ptr<ChatJob>> begin_chat(const ChatCall& call, const char* id_prefix,
                                              const MakeReply& make);
  Result<std::vector<TokenId>> completion_ids(const CompletionsCall& call) const;
  Request request_of(std::vector<TokenId> prompt, const SamplingOptions& sampling, bool seeded,
                     const ExtraFields& extra, uint64_t job) const;
  ReplyHead head_of(uint64_t job, const char* id_prefix, const ExtraFields& extra) const;

  const LoadedModel& loaded_;
  ChatTemplate chat_;
  const ServiceOptions options_;
  uint64_t salt_ = 0;  // of ids and of seeds that no call gave
  const int64_t created_s_;
  std::atomic<uint64_t> n_jobs_ = 0;
};

}  // namespace fathom
