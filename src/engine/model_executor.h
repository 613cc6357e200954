#pragma once

// ModelExecutor: the engine's rows on the model, through a Runner.

#include <functional>

#include "engine/executor.h"

namespace fathom {

// Natural logarithm of the probability of `id` among finite logits; sums in the order of ids.
float log_probability(std::span<const float> logits, int32_t id);

// The n most likely ids and their log probabilities, the likelier first; ties go to the smaller id.
std::vector<TokenLogprob> top_log_probabilities(std::span<const float> logits, int64_t n);

// What logits say of `id`, with the n most likely ids.
PromptLogprob prompt_log_probability(std::span<const float> logits, int32_t id, int64_t n);

class ModelExecutor final : public Executor {
 public:
  // Tokens are drawn from the first n_ids logits (0: all): a model may have rows that no tokenizer
  // knows. The runner outlives the executor and is used by it alone.
  ModelExecutor(Runner& runner, int64_t n_ids);

  ExecutorLimits limits() const override;
  KvPool& blocks() override { return runner_.blocks(); }
  WindowPool& windows() override { return runner_.windows(); }
  DeviceMemory& memory() override { return runner_.ops().memory(); }

  Result<Sequence> open() override { return runner_.open(); }
  void close(Sequence& sequence) override;
  void release_slot(Sequence& sequence) override { windows().release(sequence.slot); }
  Result<void> take_slot(Sequence& sequence) override;
  bool restore(Sequence& sequence, std::span<const int32_t> prefix, std::span<const BlockId> blocks,
               RestoreGrade grade) override;
  bool can_branch(const Sequence& sequence) const override { return runner_.can_branch(sequence); }
  void branch(Sequence& sequence, std::span<const int32_t> prefix, std::span<const BlockId> blocks,
              std::span<const std::byte> state) override;
  Result<void> append(Sequence& sequence, std::span<const int32_t> tokens,
                      std::span<const uint8_t> image) override {
    return runner_.append(sequence, tokens, image);
  }
  void copy(Sequence& to, const Sequence& from) override;
  Result<std::vector<SampledToken>> step(std::span<const ExecutorItem> items) override;

  // Shows the logits that tokens are drawn from, with the sequence that they follow. For tests.
  using Watch = std::function<void(const ExecutorItem& item, std::span<const float> logits)>;
  void watch(Watch watch) { watch_ = std::move(watch); }

 private:
  void add_prompt(const ExecutorItem& item, const Tensor& logits, int64_t first_row) const;
  std::span<const float> known(const Tensor& logits, int64_t row) const;

  Watch watch_;  // may be null
  Runner& runner_;
  int64_t n_ids_ = 0;
};

}  // namespace fathom
