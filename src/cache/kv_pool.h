#pragma once

// KvPool: the memory of prefix-lifetime state, in fixed blocks of kBlockTokens source tokens; one
// id names a block of all prefix streams. WindowPool: one slot of session-lifetime state (windows
// and remainders) a live sequence. PiecePool: what both are.
//
// Invariants: a block or slot is free or held by exactly one owner; released memory is not cleared.
// Thread rule: owned by the engine thread.

#include <cstdint>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tensor/kv_spec.h"
#include "tensor/kv_view.h"
#include "tensor/memory.h"

namespace fathom {

// Pieces of one size, each named by its place. Made for BlockId and WindowId (kv_pool.cc).
template <typename Id>
class PiecePool {
 public:
  Result<Id> allocate();  // kExhausted when no piece is free
  void release(Id id);

  uint8_t* base() const { return reinterpret_cast<uint8_t*>(memory_.data()); }
  int64_t n_free() const { return static_cast<int64_t>(free_.size()); }

 protected:
  // `what` names the pieces in messages and outlives the pool.
  static Result<PiecePool> make(int64_t piece_bytes, int64_t n, const char* what,
                                DeviceMemory& memory);

  int64_t piece_bytes() const { return piece_bytes_; }
  int64_t n_pieces() const { return static_cast<int64_t>(held_.size()); }

 private:
  PiecePool(int64_t piece_bytes, int64_t n, const char* what, Buffer memory);

  int64_t piece_bytes_ = 0;
  const char* what_ = nullptr;
  Buffer memory_;
  std::vector<Id> free_;  // used as a stack
  std::vector<bool> held_;
};

class KvPool : public PiecePool<BlockId> {
 public:
  // kExhausted where the memory is not to be had.
  static Result<KvPool> make(const KvSpec& spec, int64_t n_blocks, DeviceMemory& memory);

  int64_t block_bytes() const { return piece_bytes(); }
  int64_t n_blocks() const { return n_pieces(); }

 private:
  explicit KvPool(PiecePool pool) : PiecePool(std::move(pool)) {}
};

class WindowPool : public PiecePool<WindowId> {
 public:
  // kExhausted where the memory is not to be had.
  static Result<WindowPool> make(const KvSpec& spec, int64_t n_slots, DeviceMemory& memory);

  int64_t slot_bytes() const { return piece_bytes(); }

 private:
  explicit WindowPool(PiecePool pool) : PiecePool(std::move(pool)) {}
};

}  // namespace fathom
