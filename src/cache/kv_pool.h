#pragma once

// KvPool: the memory of prefix-lifetime state, in fixed blocks of kBlockTokens source tokens; one
// id names a block of all prefix streams. WindowPool: one slot of session-lifetime state (windows
// and remainders) a live sequence.
//
// Invariants: a block or slot is free or held by exactly one owner; released memory is not cleared.
// Thread rule: owned by the engine thread.

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "tensor/kv_spec.h"
#include "tensor/kv_view.h"
#include "tensor/memory.h"

namespace fathom {

class KvPool {
 public:
  // kExhausted where the memory is not to be had.
  static Result<KvPool> make(const KvSpec& spec, int64_t n_blocks, DeviceMemory& memory);

  Result<BlockId> allocate();  // kExhausted when no block is free
  void release(BlockId id);

  uint8_t* base() const { return reinterpret_cast<uint8_t*>(memory_.data()); }
  int64_t block_bytes() const { return block_bytes_; }
  int64_t n_blocks() const { return n_blocks_; }
  int64_t n_free() const { return static_cast<int64_t>(free_.size()); }

 private:
  KvPool(int64_t block_bytes, Buffer memory, int64_t n_blocks);

  int64_t block_bytes_ = 0;
  int64_t n_blocks_ = 0;
  Buffer memory_;
  std::vector<BlockId> free_;  // used as a stack
  std::vector<bool> held_;
};

class WindowPool {
 public:
  static Result<WindowPool> make(const KvSpec& spec, int64_t n_slots, DeviceMemory& memory);

  Result<WindowId> allocate();  // kExhausted when no slot is free
  void release(WindowId id);

  uint8_t* base() const { return reinterpret_cast<uint8_t*>(memory_.data()); }
  int64_t slot_bytes() const { return slot_bytes_; }
  int64_t n_free() const { return static_cast<int64_t>(free_.size()); }

 private:
  WindowPool(int64_t slot_bytes, Buffer memory, int64_t n_slots);

  int64_t slot_bytes_ = 0;
  Buffer memory_;
  std::vector<WindowId> free_;
  std::vector<bool> held_;
};

}  // namespace fathom
