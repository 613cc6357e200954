#pragma once

// The random numbers of the generators: splitmix64, the same on every machine.

#include <cstdint>
#include <utility>
#include <vector>

namespace fathom::train {

class SynthRng {
 public:
  explicit SynthRng(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t x = (state_ += 0x9E3779B97F4A7C15ull);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
  }

  // In [0, count); count > 0. The bias is below count / 2^32.
  int64_t below(int64_t count) {
    return static_cast<int64_t>(((next() >> 32) * static_cast<uint64_t>(count)) >> 32);
  }

  // In [low, high].
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }

  bool chance(int percent) { return below(100) < percent; }

  template <typename T>
  const T& pick(const std::vector<T>& items) {
    return items[static_cast<size_t>(below(static_cast<int64_t>(items.size())))];
  }

  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
    }
  }

 private:
  uint64_t state_;
};

}  // namespace fathom::train
