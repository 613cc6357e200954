#include "eval/text_score.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace fathom {
namespace {

// -log2 of the probability that a row of logits gives to `id`.
double bits_of(const float* logits, int64_t vocab_size, int32_t id) {
  const float max = *std::max_element(logits, logits + vocab_size);
  double sum = 0;
  for (int64_t i = 0; i < vocab_size; ++i) sum += std::exp(static_cast<double>(logits[i] - max));
  return (std::log(sum) - (static_cast<double>(logits[id]) - max)) / std::log(2.0);
}

}  // namespace

Result<Estimate> bits_per_byte(Runner& runner, const Tokenizer& tokenizer,
                               std::span<const int32_t> ids, const TextScoreOptions& options) {
  const auto n_ids = static_cast<int64_t>(ids.size());
  const auto end_token = static_cast<int32_t>(runner.model().config().eos_token_id);
  // Without a byte that is predicted there is no ratio.
  const auto has_bytes = [&](int32_t id) {
    return id != end_token && !tokenizer.token_bytes(id).empty();
  };
  if (n_ids < 2 || std::ranges::none_of(ids.subspan(1), has_bytes)) {
    return invalid("wanted text of at least 2 tokens, of which the first is not predicted, found " +
                   std::to_string(std::ranges::count_if(ids, has_bytes)));
  }
  std::vector<double> bits;
  std::vector<double> bytes;
  for (int64_t begin = 0; begin + 1 < n_ids; begin += options.window_tokens) {
    const int64_t n = std::min(options.window_tokens, n_ids - 1 - begin);
    if (options.on_window) options.on_window(begin / options.window_tokens);
    FATHOM_ASSIGN_OR_RETURN(Sequence sequence, runner.open());
    FATHOM_RETURN_IF_ERROR(
        runner.append(sequence, ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(n))));
    const StepItem item = {.sequence = &sequence, .n_rows = n, .want = WantLogits::kAll};
    FATHOM_ASSIGN_OR_RETURN(const Tensor logits, runner.step({&item, 1}));
    double window_bits = 0;
    double window_bytes = 0;
    for (int64_t row = 0; row < n; ++row) {
      const int32_t next = ids[static_cast<size_t>(begin + row + 1)];
      window_bits += bits_of(logits.row<float>(row), logits.dim(1), next);
      if (next != end_token)
        window_bytes += static_cast<double>(tokenizer.token_bytes(next).size());
    }
    bits.push_back(window_bits);
    bytes.push_back(window_bytes);
    runner.close(sequence);
    if (options.progress) options.progress(begin + n, n_ids - 1);
  }
  return ratio_estimate(bits, bytes);
}

}  // namespace fathom
