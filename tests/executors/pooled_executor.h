#pragma once

// PooledExecutor: pools of blocks and windows in a memory of its own, and what an executor without
// a model does with them whatever it computes.

#include <span>
#include <utility>

#include "engine/executor.h"

namespace fathom {

template <typename Memory>
class PooledExecutor : public Executor {
 public:
  KvPool& blocks() final { return blocks_; }
  WindowPool& windows() final { return windows_; }
  DeviceMemory& memory() final { return memory_; }

  Result<Sequence> open() final {
    Sequence sequence;
    FATHOM_RETURN_IF_ERROR(take_slot(sequence));
    return sequence;
  }
  void close(Sequence& sequence) final {
    release_slot(sequence);
    sequence = {};
  }

 protected:
  // `memory` are the arguments of the memory.
  template <typename... Arguments>
  PooledExecutor(const KvSpec& spec, int64_t n_blocks, int64_t n_sequences, Arguments&&... memory)
      : memory_(std::forward<Arguments>(memory)...),
        blocks_(*KvPool::make(spec, n_blocks, memory_)),
        windows_(*WindowPool::make(spec, n_sequences, memory_)) {}

  static void give_prefix(Sequence& sequence, std::span<const int32_t> prefix,
                          std::span<const BlockId> blocks) {
    sequence.tokens.assign(prefix.begin(), prefix.end());
    sequence.blocks.assign(blocks.begin(), blocks.end());
    sequence.entries_end = static_cast<int64_t>(prefix.size());
  }

  Memory memory_;
  KvPool blocks_;
  WindowPool windows_;
};

}  // namespace fathom
