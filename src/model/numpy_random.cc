#include "model/numpy_random.h"

#include <array>
#include <cstddef>

#include "base/check.h"

namespace fathom {
namespace {

constexpr std::size_t kPool = 4;

// SeedSequence's hash of entropy words: a running constant is multiplied into each word.
class WordHash {
 public:
  WordHash(uint32_t constant, uint32_t multiplier) : constant_(constant), multiplier_(multiplier) {}

  uint32_t operator()(uint32_t word) {
    word ^= constant_;
    constant_ *= multiplier_;
    word *= constant_;
    return word ^ (word >> 16);
  }

 private:
  uint32_t constant_;
  uint32_t multiplier_;
};

uint32_t mix(uint32_t x, uint32_t y) {
  const uint32_t mixed = x * 0xca01f9ddu - y * 0x4973f715u;
  return mixed ^ (mixed >> 16);
}

// Eight 32-bit words of seed material from one integer of at most 64 bits.
std::array<uint32_t, 8> seed_words(uint64_t seed) {
  const std::array<uint32_t, kPool> entropy = {static_cast<uint32_t>(seed),
                                               static_cast<uint32_t>(seed >> 32), 0, 0};
  WordHash absorb(0x43b0d7e5u, 0x931e8875u);
  std::array<uint32_t, kPool> pool = {};
  for (std::size_t i = 0; i < kPool; ++i) pool[i] = absorb(entropy[i]);
  for (std::size_t from = 0; from < kPool; ++from) {
    for (std::size_t to = 0; to < kPool; ++to) {
      if (from != to) pool[to] = mix(pool[to], absorb(pool[from]));
    }
  }
  WordHash emit(0x8b51f9ddu, 0x58f38dedu);
  std::array<uint32_t, 8> words = {};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = emit(pool[i % kPool]);
  return words;
}

}  // namespace

NumpyRandom::NumpyRandom(uint64_t seed) {
  const std::array<uint32_t, 8> words = seed_words(seed);
  std::array<uint64_t, 4> halves = {};
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = words[2 * i] | static_cast<uint64_t>(words[2 * i + 1]) << 32;
  }
  const Wide start = Wide{halves[0]} << 64 | halves[1];
  increment_ = (Wide{halves[2]} << 64 | halves[3]) << 1 | 1;
  next();
  state_ += start;
  next();
}

uint64_t NumpyRandom::next() {
  constexpr Wide kMultiplier = Wide{2549297995355413924ull} << 64 | 4865540595714422341ull;
  state_ = state_ * kMultiplier + increment_;
  const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
  const auto turn = static_cast<unsigned>(state_ >> 122);
  return folded >> turn | folded << ((64 - turn) & 63);
}

uint64_t NumpyRandom::below(uint64_t bound) {
  FATHOM_CHECK(bound > uint64_t{1} << 32);
  const uint64_t threshold = (0 - bound) % bound;
  Wide product = Wide{next()} * bound;
  while (static_cast<uint64_t>(product) < threshold) product = Wide{next()} * bound;
  return static_cast<uint64_t>(product >> 64);
}

}  // namespace fathom
