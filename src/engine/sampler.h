#pragma once

// Sampler: logits to one token. Order: mask, penalties, temperature, top-k, top-p, min-p, draw.
//
// Random numbers are counted, not streamed: the draw at a position is a function of seed and
// position alone, so a resumed or batched sample continues identically. Ties go to the smaller id.

#include <array>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace fathom {

struct SamplingOptions {
  double temperature = 1.0;  // 0: the largest logit
  double top_p = 1.0;        // smallest set of tokens with at least this probability
  int64_t top_k = 0;         // 0: all
  double min_p = 0.0;        // of the largest probability
  double repetition_penalty =
      1.0;                         // logits of seen tokens are divided (negative: multiplied) by it
  double presence_penalty = 0.0;   // subtracted once from tokens of the answer
  double frequency_penalty = 0.0;  // subtracted for each occurrence in the answer
  uint64_t seed = 0;
};

struct ValueRange {
  double low = 0;
  double high = 0;
};
inline constexpr ValueRange kTemperatureRange = {0, 100};
inline constexpr ValueRange kShareRange = {0, 1};  // of top_p and min_p
inline constexpr ValueRange kTopKRange = {0, 1e9};
inline constexpr ValueRange kRepetitionRange = {0.01, 100};
inline constexpr ValueRange kPenaltyRange = {-100, 100};  // of presence and frequency

// Refuses values outside their ranges, by name.
Result<void> validate(const SamplingOptions& options);

// `logits` of ids from 0 on, one at least; the result is one of these ids. `tokens` is the whole
// sequence so far, of which the first `prompt_tokens` are the prompt; the draw is keyed by
// tokens.size(). Tokens without a logit (a model may have more rows than its tokenizer has tokens)
// take no penalty. `mask` has a bit for each id that may be drawn, id 0 in the lowest bit of the
// first word, as far as it goes; empty: all may. kInvalid, with the token, where a logit is not
// finite, and where no id may be drawn.
Result<int32_t> sample(std::span<const float> logits, std::span<const int32_t> tokens,
                       int64_t prompt_tokens, const SamplingOptions& options,
                       std::span<const uint64_t> mask = {});

// Philox 4x32-10: four random words of a counter under a key (Salmon et al., Parallel random
// numbers: as easy as 1, 2, 3, SC 2011).
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A number in [0, 1) with 53 random bits: philox keyed by seed, counted by position.
double counted_uniform(uint64_t seed, uint64_t position);

}  // namespace fathom
