#pragma once

// A set of Unicode scalar values as sorted, disjoint, non-touching ranges. Thread rule: a value.

#include <algorithm>
#include <utility>
#include <vector>

namespace fathom {

class CharacterSet {
 public:
  using Range = std::pair<char32_t, char32_t>;  // both ends belong to it

  CharacterSet() = default;
  // In any order, also overlapping. Surrogates inside them stay until a complement is taken.
  explicit CharacterSet(std::vector<Range> ranges) {
    std::ranges::sort(ranges);
    for (const Range& range : ranges) {
      if (!ranges_.empty() && range.first <= ranges_.back().second + 1) {
        ranges_.back().second = std::max(ranges_.back().second, range.second);
      } else {
        ranges_.push_back(range);
      }
    }
  }

  const std::vector<Range>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t c) const {
    return std::ranges::any_of(ranges_,
                               [c](const Range& r) { return r.first <= c && c <= r.second; });
  }

  // All scalar values that are not in this set.
  CharacterSet complement() const {
    std::vector<Range> gaps;
    const auto add = [&](char32_t low, char32_t high) {
      if (low <= high) gaps.emplace_back(low, high);
    };
    const auto add_scalars = [&](char32_t low, char32_t high) {
      add(low, std::min<char32_t>(high, 0xD7FF));
      add(std::max<char32_t>(low, 0xE000), high);
    };
    char32_t next = 0;
    for (const Range& range : ranges_) {
      if (range.first > next) add_scalars(next, range.first - 1);
      next = range.second + 1;
    }
    add_scalars(next, 0x10FFFF);
    return CharacterSet(std::move(gaps));
  }
  CharacterSet without(const CharacterSet& other) const {
    std::vector<Range> outside = complement().ranges_;
    outside.insert(outside.end(), other.ranges_.begin(), other.ranges_.end());
    return CharacterSet(std::move(outside)).complement();
  }

 private:
  std::vector<Range> ranges_;
};

}  // namespace fathom
