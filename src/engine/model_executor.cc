#include "engine/model_executor.h"

#include <algorithm>
#include <numeric>

#include "base/math.h"

namespace fathom {

namespace {

// What all log probabilities of one distribution share.
struct LogSum {
  explicit LogSum(std::span<const float> logits) : largest(*std::ranges::max_element(logits)) {
    double sum = 0;
    for (const float logit : logits) sum += static_cast<double>(exp_f32(logit - largest));
    log_sum = log_f64(sum);
  }
  float of(float logit) const {
    return static_cast<float>(static_cast<double>(logit - largest) - log_sum);
  }

  float largest = 0;
  double log_sum = 0;
};

}  // namespace

float log_probability(std::span<const float> logits, int32_t id) {
  return LogSum(logits).of(logits[static_cast<size_t>(id)]);
}

std::vector<TokenLogprob> top_log_probabilities(std::span<const float> logits, int64_t n) {
  if (n == 0) return {};
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)];
    const float y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto n_kept = std::min(static_cast<size_t>(n), ids.size());
  const auto end = ids.begin() + static_cast<ptrdiff_t>(n_kept);
  std::partial_sort(ids.begin(), end, ids.end(), likelier);
  const LogSum sum(logits);
  std::vector<TokenLogprob> top;
  for (auto id = ids.begin(); id != end; ++id) {
    top.push_back({.id = *id, .logprob = sum.of(logits[static_cast<size_t>(*id)])});
  }
  return top;
}

PromptLogprob prompt_log_probability(std::span<const float> logits, int32_t id, int64_t n) {
  const float said = logits[static_cast<size_t>(id)];
  int64_t rank = 1;
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool before = logits[i] == said && i < static_cast<size_t>(id);
    rank += logits[i] > said || before ? 1 : 0;
  }
  return {.token = {.id = id, .logprob = log_probability(logits, id)},
          .rank = rank,
          .top = top_log_probabilities(logits, n)};
}

ModelExecutor::ModelExecutor(Runner& runner, int64_t n_ids)
    : runner_(runner), n_ids_(n_ids == 0 ? runner.model().config().text_config.vocab_size : n_ids) {
  FATHOM_CHECK(0 < n_ids_ && n_ids_ <= runner.model().config().text_config.vocab_size);
}

ExecutorLimits ModelExecutor::limits() const {
  const RunnerOptions& options = runner_.options();
  const TextConfig& text = runner_.model().config().text_config;
  const bool gathers = options.schedule == Schedule::kDeploy && runner_.model().has_decoder();
  return {.context = options.context,
          .n_sequences = options.n_sequences,
          .max_rows = options.max_rows,
          .end_rows = gathers ? runner_.window() : 0,
          .feed_rows = std::min(runner_.window(), options.max_rows),
          .exact_replay_rows = runner_.replay_rows(RestoreGrade::kExact),
          .bounded_replay_rows = runner_.replay_rows(RestoreGrade::kBounded),
          .prompt_logit_rows = std::max<int64_t>(0, options.max_logit_rows - options.n_sequences),
          .vocab_size = text.vocab_size};
}

void ModelExecutor::close(Sequence& sequence) {
  sequence.blocks.clear();  // they are the lease's
  runner_.close(sequence);
}

Result<void> ModelExecutor::take_slot(Sequence& sequence) {
  FATHOM_ASSIGN_OR_RETURN(sequence.slot, windows().allocate());
  return {};
}

// The sequence as it would be with the prefix behind it and its windows lost.
bool ModelExecutor::restore(Sequence& sequence, std::span<const int32_t> prefix,
                            std::span<const BlockId> blocks, RestoreGrade grade) {
  sequence.tokens.assign(prefix.begin(), prefix.end());
  sequence.blocks.assign(blocks.begin(), blocks.end());
  sequence.length = static_cast<int64_t>(prefix.size());
  runner_.rewind(sequence, sequence.length, grade);
  return grade == RestoreGrade::kExact || sequence.length == 0;
}

void ModelExecutor::branch(Sequence& sequence, std::span<const int32_t> prefix,
                           std::span<const BlockId> blocks, std::span<const std::byte> state) {
  unpack_state(*this, sequence, state);
  runner_.branch(sequence);
  sequence.tokens.assign(prefix.begin(), prefix.end());
  sequence.blocks.assign(blocks.begin(), blocks.end());
  FATHOM_CHECK(sequence.length <= static_cast<int64_t>(prefix.size()));
  sequence.entries_end = static_cast<int64_t>(prefix.size());
}

void ModelExecutor::copy(Sequence& to, const Sequence& from) {
  to.tokens = from.tokens;
  to.image = from.image;
  to.positions() = from.positions();
  write_slot(*this, to, read_slot(*this, from));
  if (from.tail.bytes() == 0) return;
  std::vector<std::byte> tail(static_cast<size_t>(from.tail.bytes()));
  memory().read(tail.data(), from.tail.data(), from.tail.bytes());
  memory().write(to.tail.data(), tail.data(), from.tail.bytes());
}

std::span<const float> ModelExecutor::known(const Tensor& logits, int64_t row) const {
  return {logits.as<float>() + row * logits.dim(1), static_cast<size_t>(n_ids_)};
}

// A prompt may hold ids that no tokenizer knows: those are foreseen by all logits.
void ModelExecutor::add_prompt(const ExecutorItem& item, const Tensor& logits,
                               int64_t first_row) const {
  const Sequence& sequence = *item.sequence;
  const int64_t begin = sequence.length - item.n_rows;
  for (int64_t i = 0; i < item.n_rows && begin + i + 1 < item.prompt_tokens; ++i) {
    const int32_t id = sequence.tokens[static_cast<size_t>(begin + i + 1)];
    const std::span<const float> all(logits.as<float>() + (first_row + i) * logits.dim(1),
                                     static_cast<size_t>(logits.dim(1)));
    item.prompt->push_back(prompt_log_probability(id < n_ids_ ? known(logits, first_row + i) : all,
                                                  id, item.prompt_top));
  }
}

Result<std::vector<SampledToken>> ModelExecutor::step(std::span<const ExecutorItem> items) {
  std::vector<StepItem> rows;
  for (const ExecutorItem& item : items) {
    rows.push_back({.sequence = item.sequence,
                    .n_rows = item.n_rows,
                    .want = item.prompt != nullptr ? WantLogits::kAll
                            : item.draws.empty()   ? WantLogits::kNone
                                                   : WantLogits::kLast});
  }
  FATHOM_ASSIGN_OR_RETURN(const Tensor logits, runner_.step(rows));
  std::vector<SampledToken> tokens;
  int64_t row = 0;
  for (const ExecutorItem& item : items) {
    if (item.prompt != nullptr) {
      add_prompt(item, logits, row);
      row += item.n_rows - (item.draws.empty() ? 0 : 1);
    }
    if (item.draws.empty()) continue;
    const std::span<const float> values = known(logits, row);
    if (watch_) watch_(item, values);
    const std::vector<TokenLogprob> top = top_log_probabilities(values, item.top_logprobs);
    for (const SamplingOptions& draw : item.draws) {
      FATHOM_ASSIGN_OR_RETURN(const int32_t id, sample(values, item.sequence->tokens,
                                                       item.prompt_tokens, draw, item.mask));
      tokens.push_back({.id = id, .logprob = log_probability(values, id), .top = top});
    }
    ++row;
  }
  return tokens;
}

}  // namespace fathom
