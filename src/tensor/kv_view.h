#pragma once

// Views of packed state for the rows of one step. They own nothing; the engine keeps the blocks and
// slots that they name pinned for the step.

#include <cstdint>
#include <span>

#include "tensor/kv_spec.h"

namespace fathom {

enum class BlockId : uint32_t {};
enum class WindowId : uint32_t {};

// One prefix-lifetime stream for a batch of sequences.
struct KvView {
  uint8_t* base = nullptr;  // of block 0 of the pool
  int64_t block_bytes = 0;
  std::span<const std::span<const BlockId>> blocks;  // [sequence][block index]
  KvStream stream;

  uint8_t* payload(int64_t sequence, int64_t entry) const {
    return block_of(sequence, entry) + stream.payload_offset +
           entry % stream.rows * stream.payload_bytes;
  }
  uint8_t* scale(int64_t sequence, int64_t entry) const {
    return block_of(sequence, entry) + stream.scale_offset +
           entry % stream.rows * stream.scale_bytes;
  }

 private:
  uint8_t* block_of(int64_t sequence, int64_t entry) const {
    const auto index = static_cast<size_t>(entry / stream.rows);
    const BlockId id = blocks[static_cast<size_t>(sequence)][index];
    return base + static_cast<int64_t>(id) * block_bytes;
  }
};

// One session-lifetime stream (a layer's window ring or a source's remainder) for a batch.
struct SlotView {
  uint8_t* base = nullptr;  // of slot 0 of the pool
  int64_t slot_bytes = 0;
  std::span<const WindowId> slots;  // [sequence]
  KvStream stream;

  uint8_t* payload(int64_t sequence, int64_t row) const {
    return slot_of(sequence) + stream.payload_offset + row * stream.payload_bytes;
  }
  uint8_t* scale(int64_t sequence, int64_t row) const {
    return slot_of(sequence) + stream.scale_offset + row * stream.scale_bytes;
  }

 private:
  uint8_t* slot_of(int64_t sequence) const {
    return base + static_cast<int64_t>(slots[static_cast<size_t>(sequence)]) * slot_bytes;
  }
};

}  // namespace fathom
