#pragma once

// The rows of one step: which sequence and which absolute position each row is.
// Rows of one sequence are consecutive, in order of position, and start where its caches end.

#include <cstdint>
#include <span>
#include <vector>

namespace fathom {

struct SequenceRows {
  int64_t n_rows = 0;
  int64_t first_position = 0;  // absolute position of its first row
  int64_t window_low = 0;      // lowest position that windows may show; above 0 after a replay
  int64_t write_from = 0;      // first position whose global entries are written, not only replayed
};

class Rows {
 public:
  explicit Rows(std::vector<SequenceRows> sequences);

  int64_t n_rows() const { return static_cast<int64_t>(position_.size()); }
  int64_t n_sequences() const { return static_cast<int64_t>(sequences_.size()); }
  const SequenceRows& sequence(int64_t s) const { return sequences_[static_cast<size_t>(s)]; }
  int64_t first_row(int64_t s) const { return first_row_[static_cast<size_t>(s)]; }

  int64_t position(int64_t row) const { return position_[static_cast<size_t>(row)]; }
  int64_t sequence_of(int64_t row) const { return sequence_of_[static_cast<size_t>(row)]; }

 private:
  std::vector<SequenceRows> sequences_;
  std::vector<int64_t> first_row_;
  std::vector<int64_t> position_;
  std::vector<int64_t> sequence_of_;
};

// Entries of ratio m that the row at `position` may see: floor((position + 1) / m).
constexpr int64_t visible_entries(int64_t position, int ratio) { return (position + 1) / ratio; }

// Positions that a sequence may have: angles are exact to here (base/math.h, sincos_f32), and entry
// ids fit their 32 bits.
inline constexpr int64_t kPositionsMax = int64_t{1} << 21;

// Marks an unused place in a list of entry or block ids.
inline constexpr int32_t kNoEntry = -1;

}  // namespace fathom
