#pragma once

// ScriptedExecutor: an executor that says what a script says, so that long conversations can be
// driven through the server without a model. It keeps the positions of a sequence as the contract
// of Executor wants them and computes nothing.
//
// For protocol tests; never part of the shipped program.

#include <functional>
#include <map>

#include "engine/executor.h"
#include "pooled_executor.h"
#include "script.h"
#include "text/tokenizer.h"

namespace fathom {

struct ScriptedOptions {
  int64_t context = 4096;
  int64_t n_sequences = 8;
  int64_t n_blocks = 512;
  int64_t max_rows = 1024;
  int64_t step_us = 0;  // from the end of one step to the end of the next, at least
};

// Told on the engine thread about streams of letters.
struct ScriptedWatch {
  std::function<void(int64_t stream)> started;           // its first step begins
  std::function<void(int64_t stream, int64_t k)> drawn;  // its letter k was drawn
};

class ScriptedExecutor final : public PooledExecutor<HostMemory> {
 public:
  // Script and tokenizer outlive the executor. `end_id` follows each answer.
  ScriptedExecutor(const Script& script, const Tokenizer& tokenizer, int32_t end_id,
                   const ScriptedOptions& options);

  void watch(ScriptedWatch watch) { watch_ = std::move(watch); }

  ExecutorLimits limits() const override;

  void release_slot(Sequence& sequence) override;
  Result<void> take_slot(Sequence& sequence) override;
  bool restore(Sequence& sequence, std::span<const int32_t> prefix, std::span<const BlockId> blocks,
               RestoreGrade grade) override;
  bool can_branch(const Sequence& sequence) const override;
  void branch(Sequence& sequence, std::span<const int32_t> prefix, std::span<const BlockId> blocks,
              std::span<const std::byte> state) override;
  Result<void> append(Sequence& sequence, std::span<const int32_t> tokens,
                      std::span<const uint8_t> image) override;
  void copy(Sequence& to, const Sequence& from) override;
  // Fails where the script has no answer to a prompt.
  Result<std::vector<SampledToken>> step(std::span<const ExecutorItem> items) override;

 private:
  struct Answer {
    std::vector<TokenId> ids;
    int64_t stream = -1;
  };

  Result<const Answer*> answer_to(const ExecutorItem& item);
  int32_t next_of(const Answer& answer, const ExecutorItem& item) const;
  void keep_pace();

  const Script& script_;
  const Tokenizer& tokenizer_;
  const int32_t end_id_;
  const ScriptedOptions options_;
  ScriptedWatch watch_;
  std::map<WindowId, Answer> answers_;  // of whoever holds the slot, once looked up
  double last_step_s_ = 0;
};

}  // namespace fathom
