#include "model/step.h"

#include "base/check.h"

namespace fathom {
namespace {

std::vector<SequenceRows> rows_of(std::span<const SequenceStep> sequences) {
  std::vector<SequenceRows> rows;
  for (const SequenceStep& sequence : sequences) rows.push_back(sequence.rows);
  return rows;
}

}  // namespace

Step::Step(const StateMemory& memory, std::span<const SequenceStep> sequences)
    : memory_(memory), sequences_(sequences.begin(), sequences.end()), rows_(rows_of(sequences)) {
  for (const SequenceStep& sequence : sequences_) {
    const int64_t end = sequence.rows.first_position + sequence.rows.n_rows;
    FATHOM_CHECK(static_cast<int64_t>(sequence.tokens.size()) >= end);
    FATHOM_CHECK(sequence.image.empty() || sequence.image.size() == sequence.tokens.size());
    FATHOM_CHECK(static_cast<int64_t>(sequence.blocks.size()) * kBlockTokens >= end);
    blocks_.push_back(sequence.blocks);
    slots_.push_back(sequence.slot);
  }
}

bool Step::has_images() const {
  for (const SequenceStep& sequence : sequences_) {
    if (!sequence.image.empty()) return true;
  }
  return false;
}

KvView Step::kv(KvRole role, int layer) const {
  return {.base = memory_.block_base,
          .block_bytes = memory_.block_bytes,
          .blocks = blocks_,
          .stream = memory_.spec->stream(role, layer)};
}

SlotView Step::slot(KvRole role, int layer) const {
  return {.base = memory_.slot_base,
          .slot_bytes = memory_.slot_bytes,
          .slots = slots_,
          .stream = memory_.spec->stream(role, layer)};
}

}  // namespace fathom
