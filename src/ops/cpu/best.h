#pragma once

// The best k of a stream of scores: larger first, ties to the smaller id. The order is total, so
// the result depends on neither the order nor the grouping of what is pushed.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "ops/rows.h"

namespace fathom::cpu {

class BestK {
 public:
  void begin(int64_t k) {
    k_ = static_cast<size_t>(k);
    items_.clear();
    worst_ = {-std::numeric_limits<float>::infinity(), std::numeric_limits<int32_t>::min()};
  }

  // Scores of -inf and NaN are never kept.
  void push(float score, int32_t id) {
    if (!(score >= worst_.score)) return;
    const Item item = {score, id};
    if (!better(item, worst_) || k_ == 0) return;
    items_.push_back(item);
    if (items_.size() >= 2 * k_ + 64) shrink();
  }

  void merge(const BestK& other) {
    for (const Item& item : other.items_) push(item.score, item.id);
  }

  // The ids in ascending order, padded with kNoEntry to k places.
  void write(int32_t* out) {
    if (items_.size() > k_) shrink();
    size_t n = 0;
    for (const Item& item : items_) out[n++] = item.id;
    std::sort(out, out + n);
    std::fill(out + n, out + k_, kNoEntry);
  }

 private:
  struct Item {
    float score;
    int32_t id;
  };
  static bool better(const Item& a, const Item& b) {
    return a.score > b.score || (a.score == b.score && a.id < b.id);
  }

  void shrink() {
    const auto last = items_.begin() + static_cast<int64_t>(k_) - 1;
    std::nth_element(items_.begin(), last, items_.end(), better);
    items_.resize(k_);
    worst_ = items_.back();
  }

  size_t k_ = 0;
  Item worst_ = {};
  std::vector<Item> items_;
};

}  // namespace fathom::cpu
