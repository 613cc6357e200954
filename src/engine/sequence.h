#pragma once

// Sequence: one timeline of tokens and the state that the model keeps for it.
//
// Invariants (W = sliding_window):
//   entries of positions [0, entries_end) lie in `blocks`;
//   encoder windows hold positions [max(encoder_low, length - W), length);
//   decoder windows hold positions [max(decoder_low, decoder_length - W), decoder_length);
//   where there is a tail, it holds positions [max(tail_low, length - W), length), among them those
//   of the last W that the decoder has not seen;
//   length <= tokens.size(); decoder_length <= length.
// After a rewind, positions [length, entries_end) are replayed: their windows are rebuilt, their
// entries are not written again.

#include <cstdint>
#include <vector>

#include "tensor/kv_view.h"
#include "tensor/tensor.h"

namespace fathom {

// The part of a sequence that numbers say: copied, saved and restored as one value.
struct SequencePositions {
  int64_t length = 0;          // positions that the encoder has seen
  int64_t decoder_length = 0;  // positions up to which the decoder's windows are current
  int64_t entries_end = 0;     // positions whose entries exist
  int64_t encoder_low = 0;
  int64_t decoder_low = 0;
  int64_t tail_low = 0;
  int64_t replayed = 0;  // rows that were computed a second time, for usage figures
};

// What positions of a sequence with n_tokens always are.
inline bool are_possible(const SequencePositions& at, int64_t n_tokens) {
  return 0 <= at.length && at.length <= at.entries_end && at.entries_end <= n_tokens &&
         0 <= at.decoder_length && at.decoder_length <= at.length && 0 <= at.encoder_low &&
         at.encoder_low <= at.length && 0 <= at.decoder_low &&
         at.decoder_low <= at.decoder_length && 0 <= at.tail_low && at.tail_low <= at.length &&
         at.replayed >= 0;
}

struct Sequence : SequencePositions {
  std::vector<int32_t> tokens;  // prompt and answer, processed or not
  std::vector<uint8_t> image;   // empty, or as long as tokens: 1 inside an image span
  std::vector<BlockId> blocks;
  WindowId slot = {};

  // Boundary rows, position p in row p mod W. Empty where no decoder sees less than all rows.
  Buffer tail;

  SequencePositions& positions() { return *this; }
  const SequencePositions& positions() const { return *this; }
  int64_t pending() const { return static_cast<int64_t>(tokens.size()) - length; }
};

}  // namespace fathom
