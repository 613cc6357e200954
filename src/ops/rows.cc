#include "ops/rows.h"

namespace fathom {

Rows::Rows(std::vector<SequenceRows> sequences) : sequences_(std::move(sequences)) {
  for (size_t s = 0; s < sequences_.size(); ++s) {
    first_row_.push_back(n_rows());
    for (int64_t i = 0; i < sequences_[s].n_rows; ++i) {
      position_.push_back(sequences_[s].first_position + i);
      sequence_of_.push_back(static_cast<int64_t>(s));
    }
  }
}

}  // namespace fathom
