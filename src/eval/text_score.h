#pragma once

// Bits per byte of text under a model, from the packed engine: all layers over all rows (exact
// schedule), windows of `window_tokens`, every token but the first predicted once.

#include <functional>
#include <span>

#include "engine/runner.h"
#include "eval/interval.h"
#include "text/tokenizer.h"

namespace fathom {

struct TextScoreOptions {
  int64_t window_tokens = 2048;
  // Before each window; for selections that need to know where they are. May be null.
  std::function<void(int64_t window)> on_window;
  std::function<void(int64_t done, int64_t all)> progress;  // tokens; may be null
};

// `ids` is one stream; end tokens have no bytes. kInvalid where no token but the first has any. The
// runner's schedule is exact, with max_rows and max_logit_rows of at least window_tokens, and no
// other sequence is open.
Result<Estimate> bits_per_byte(Runner& runner, const Tokenizer& tokenizer,
                               std::span<const int32_t> ids, const TextScoreOptions& options);

}  // namespace fathom
