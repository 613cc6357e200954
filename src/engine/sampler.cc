#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/math.h"

namespace fathom {
namespace {

std::string show(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof(digits), value).ptr};
}

Result<void> in_range(const char* name, double value, ValueRange range) {
  if (value >= range.low && value <= range.high) return {};  // false for NaN
  return invalid(std::string(name) + ": wanted " + show(range.low) + " to " + show(range.high) +
                 ", found " + show(value));
}

// A NaN has no place in an order of candidates, an infinity none in a sum of weights.
Result<void> all_finite(std::span<const float> logits) {
  const auto bad = std::ranges::find_if(logits, [](float x) { return !std::isfinite(x); });
  if (bad == logits.end()) return {};
  return invalid("logits: wanted finite numbers, found " + std::to_string(*bad) + " for token " +
                 std::to_string(bad - logits.begin()));
}

// Larger logit first, then the smaller id.
struct Candidate {
  float logit = 0;
  int32_t id = 0;
  bool operator<(const Candidate& other) const {
    return logit != other.logit ? logit > other.logit : id < other.id;
  }
};

std::vector<float> penalised(std::span<const float> logits, std::span<const int32_t> tokens,
                             int64_t prompt_tokens, const SamplingOptions& options) {
  std::vector<float> result(logits.begin(), logits.end());
  const bool repetition = options.repetition_penalty != 1.0;
  const bool counts = options.presence_penalty != 0.0 || options.frequency_penalty != 0.0;
  if (!repetition && !counts) return result;
  std::unordered_map<int32_t, int64_t> answer_counts;  // 0 for tokens of the prompt alone
  for (size_t i = 0; i < tokens.size(); ++i) {
    answer_counts[tokens[i]] += static_cast<int64_t>(i) >= prompt_tokens ? 1 : 0;
  }
  constexpr double kLargest = std::numeric_limits<float>::max();
  for (const auto& [id, count] : answer_counts) {
    if (static_cast<size_t>(id) >= result.size()) continue;
    double value = result[static_cast<size_t>(id)];
    value = value > 0 ? value / options.repetition_penalty : value * options.repetition_penalty;
    if (count > 0) {
      value -= options.presence_penalty + options.frequency_penalty * static_cast<double>(count);
    }
    result[static_cast<size_t>(id)] = static_cast<float>(std::clamp(value, -kLargest, kLargest));
  }
  return result;
}

bool may_be_drawn(std::span<const uint64_t> mask, size_t id) {
  return mask.empty() || (id / 64 < mask.size() && (mask[id / 64] >> (id % 64) & 1) != 0);
}

// The candidates that mask and top-k leave, best first.
std::vector<Candidate> ranked(std::span<const float> logits, const SamplingOptions& options,
                              std::span<const uint64_t> mask) {
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!may_be_drawn(mask, i)) continue;
    candidates.push_back({.logit = logits[i], .id = static_cast<int32_t>(i)});
  }
  const auto k = options.temperature == 0 ? size_t{1} : static_cast<size_t>(options.top_k);
  if (k > 0 && k < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + static_cast<int64_t>(k),
                     candidates.end());
    candidates.resize(k);
  }
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

int32_t draw(const std::vector<Candidate>& candidates, uint64_t position,
             const SamplingOptions& options) {
  const auto inverse = static_cast<float>(1.0 / std::max(options.temperature, 1e-5));
  std::vector<double> weights;
  double sum = 0;
  for (const Candidate& c : candidates) {
    weights.push_back(exp_f32((c.logit - candidates.front().logit) * inverse));
    sum += weights.back();
  }
  // Weights descend from 1, so min-p compares with them directly.
  size_t n_kept = 0;
  double kept = 0;
  while (n_kept < weights.size() && weights[n_kept] >= options.min_p) {
    kept += weights[n_kept++];
    if (kept >= options.top_p * sum) break;
  }
  n_kept = std::max<size_t>(n_kept, 1);
  kept = std::accumulate(weights.begin(), weights.begin() + static_cast<int64_t>(n_kept), 0.0);
  double rest = counted_uniform(options.seed, position) * kept;
  for (size_t i = 0; i < n_kept; ++i) {
    rest -= weights[i];
    if (rest < 0) return candidates[i].id;
  }
  return candidates[n_kept - 1].id;
}

}  // namespace

Result<void> validate(const SamplingOptions& options) {
  FATHOM_RETURN_IF_ERROR(in_range("temperature", options.temperature, kTemperatureRange));
  FATHOM_RETURN_IF_ERROR(in_range("top_p", options.top_p, kShareRange));
  FATHOM_RETURN_IF_ERROR(in_range("min_p", options.min_p, kShareRange));
  FATHOM_RETURN_IF_ERROR(
      in_range("repetition_penalty", options.repetition_penalty, kRepetitionRange));
  FATHOM_RETURN_IF_ERROR(in_range("presence_penalty", options.presence_penalty, kPenaltyRange));
  FATHOM_RETURN_IF_ERROR(in_range("frequency_penalty", options.frequency_penalty, kPenaltyRange));
  return in_range("top_k", static_cast<double>(options.top_k), kTopKRange);
}

Result<int32_t> sample(std::span<const float> logits, std::span<const int32_t> tokens,
                       int64_t prompt_tokens, const SamplingOptions& options,
                       std::span<const uint64_t> mask) {
  FATHOM_CHECK(!logits.empty());
  FATHOM_RETURN_IF_ERROR(all_finite(logits));
  const std::vector<float> changed = penalised(logits, tokens, prompt_tokens, options);
  if (options.temperature == 0 && mask.empty()) {
    return static_cast<int32_t>(std::ranges::max_element(changed) - changed.begin());
  }
  const std::vector<Candidate> candidates = ranked(changed, options, mask);
  if (candidates.empty()) return invalid("mask: wanted an id that may be drawn, found none");
  if (options.temperature == 0) return candidates.front().id;
  return draw(candidates, tokens.size(), options);
}

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

double counted_uniform(uint64_t seed, uint64_t position) {
  const std::array<uint32_t, 4> counter =
      philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{counter[0]} << 32 | counter[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace fathom
