#pragma once

// What a server hands to the engine, and what comes back. Values: nothing here is shared.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/block_key.h"
#include "engine/executor.h"
#include "text/grammar.h"

namespace fathom {

enum class RequestId : uint64_t {};
enum class TenantId : uint64_t {};

struct Request {
  TenantId tenant = {};
  std::string tenant_salt;  // roots the keys of its blocks; equal for all requests of a tenant
  double tenant_weight = 1;
  int priority = 0;        // among the tenant's own requests; larger first
  int64_t timeout_us = 0;  // after the engine took it in; 0: none

  std::vector<int32_t> prompt;
  std::vector<ImageSpan> images;  // inside the prompt, ascending
  int64_t max_tokens = 16;
  std::vector<int32_t> stop_ids;  // end an answer and are not part of it
  SamplingOptions sampling;       // choice i draws with seed + i
  // Of each answer: stop ids are drawn only where its text can end, and where nothing can follow
  // the answer ends with kStop.
  std::optional<Grammar> grammar;
  int64_t n_choices = 1;
  int64_t top_logprobs = 0;  // most likely tokens beside each of the answer; to kTopLogprobsMax
  // Given: the log probability of each prompt token behind the first, and so many of the most
  // likely ones beside it. The decoder then sees the whole prompt (as in the exact schedule, and
  // the answer is the one of that schedule), from its first token on: what the cache holds of it
  // saves nothing. At most kPromptLogprobsMax in all choices, the most likely ones counted.
  std::optional<int64_t> prompt_logprobs;
  RestoreGrade restore = RestoreGrade::kExact;
};

inline constexpr int64_t kPromptLogprobsMax = 131'072;

enum class EndReason : uint8_t {
  kNone,       // more will come
  kStop,       // a stop id, or the end of what the grammar allows
  kLength,     // max_tokens, or the context is full
  kCancelled,  // by the caller
  kDeadline,
  kError,  // the executor failed for this one
};
const char* end_reason_name(EndReason reason);

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;    // of the prompt, whose entries were there
  int64_t restored_tokens = 0;  // of those, read from a tier for this request
  int64_t replayed_tokens = 0;  // rows computed again to rebuild windows
  int64_t computed_tokens = 0;  // rows that wrote entries
  int64_t answered_tokens = 0;
  int64_t queued_us = 0;  // from its arrival until it was first given a slot
  int64_t n_parked = 0;   // pre-emptions that kept the windows
  int64_t n_dropped = 0;  // and those that did not
  bool exact = true;      // false: rows followed a bounded replay

  // Of the prompt, what was there and was not computed again.
  int64_t skipped_tokens() const { return std::max<int64_t>(cached_tokens - replayed_tokens, 0); }
};

// Tokens of one choice in order. The last output of a choice carries a reason and its usage.
struct Output {
  RequestId request = {};
  int64_t choice = 0;
  std::vector<SampledToken> tokens;
  // Once a request that asked for it, with the first output of choice 0 behind its prompt.
  std::optional<std::vector<PromptLogprob>> prompt;
  EndReason finish = EndReason::kNone;
  std::string error;  // one line, where finish is kError
  Usage usage;        // so far; whole with finish
};

}  // namespace fathom
