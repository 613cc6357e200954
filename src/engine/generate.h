#pragma once

// Generation for one sequence: prefill, then sample and decode until something stops it.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/runner.h"
#include "engine/sampler.h"
#include "text/token_matcher.h"
#include "text/tokenizer.h"

namespace fathom {

struct GenerateOptions {
  int64_t max_tokens = 256;
  SamplingOptions sampling;
  std::vector<int32_t> stop_ids;  // not part of the answer
  // Null: any text. Else stop ids come only where the answer can end, and where nothing can follow
  // it ends. Outlives the call.
  TokenMatcher* form = nullptr;
  std::vector<std::string> stop;  // the answer ends before the first of these; not part of it
};

enum class StopReason : uint8_t { kStop, kLength, kCancelled };
const char* stop_reason_name(StopReason reason);  // "stop", "length", "cancelled"

struct Generated {
  // Without stop ids. At a stop string: the fewest of which the text begins with `text`; they give
  // more than it only where the stop string begins within the last of them.
  std::vector<int32_t> ids;
  std::string text;
  StopReason stop_reason = StopReason::kLength;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;    // prompt tokens whose state was there already
  int64_t replayed_tokens = 0;  // rows computed again to rebuild windows
  int64_t decode_steps = 0;     // after the prefill, whose logits give the first token
  double prefill_seconds = 0;
  double decode_seconds = 0;  // of the decode steps alone
};

// What the caller sees while it runs, and its clock. All may be null; returning false cancels.
struct GenerateEvents {
  std::function<double()> seconds;  // since any start; null: times stay 0
  Runner::Progress prefill;
  std::function<bool(std::string_view text)> text;  // decided text, whole characters
};

// The sequence's pending tokens are the prompt's uncached part. Text is produced only where a
// tokenizer is given; null: ids alone, and kInvalid where `stop` is not empty. Only ids that the
// tokenizer knows are drawn. Ends with `length` also where the context is full. Afterwards the
// sequence holds prompt and answer, the last token of it perhaps pending.
Result<Generated> generate(Runner& runner, Sequence& sequence, const Tokenizer* tokenizer,
                           const GenerateOptions& options, const GenerateEvents& events);

}  // namespace fathom
