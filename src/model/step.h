#pragma once

// A step: the rows that the model computes together, and where the state of their sequences lies.

#include <span>
#include <vector>

#include "ops/rows.h"
#include "tensor/kv_spec.h"
#include "tensor/kv_view.h"

namespace fathom {

// Where the pools of the engine lie, and how in each block and slot.
struct StateMemory {
  const KvSpec* spec = nullptr;
  uint8_t* block_base = nullptr;
  int64_t block_bytes = 0;
  uint8_t* slot_base = nullptr;
  int64_t slot_bytes = 0;
};

// What one sequence brings. Spans are borrowed for the step.
struct SequenceStep {
  SequenceRows rows;
  std::span<const int32_t> tokens;  // ids of positions [0, end of its rows), inside the vocabulary
  std::span<const uint8_t> image;   // the same positions, 1 inside an image span; empty: none
  std::span<const BlockId> blocks;  // back every entry below the end of its rows
  WindowId slot = {};
};

class Step {
 public:
  Step(const StateMemory& memory, std::span<const SequenceStep> sequences);

  const Rows& rows() const { return rows_; }
  int64_t n_rows() const { return rows_.n_rows(); }
  std::span<const SequenceStep> sequences() const { return sequences_; }
  bool has_images() const;

  KvView kv(KvRole role, int layer) const;      // main, index
  SlotView slot(KvRole role, int layer) const;  // window, remainder

 private:
  StateMemory memory_;
  std::vector<SequenceStep> sequences_;
  Rows rows_;
  std::vector<std::span<const BlockId>> blocks_;
  std::vector<WindowId> slots_;
};

}  // namespace fathom
