#include "train/engram_hash.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_set>

namespace fathom::train {

namespace {

using Word = unsigned __int128;

// NumPy's SeedSequence: entropy words are mixed into a pool of four 32-bit words.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    std::vector<uint32_t> entropy{static_cast<uint32_t>(seed)};
    if ((seed >> 32) != 0) {
      entropy.push_back(static_cast<uint32_t>(seed >> 32));
    }
    uint32_t constant = 0x43b0d7e5U;
    for (size_t i = 0; i < pool_.size(); ++i) {
      pool_[i] = hash(i < entropy.size() ? entropy[i] : 0, constant);
    }
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from != to) {
          pool_[to] = mix(pool_[to], hash(pool_[from], constant));
        }
      }
    }
  }

  std::array<uint64_t, 4> state() const {
    std::array<uint32_t, 8> words{};
    uint32_t constant = 0x8b51f9ddU;
    for (size_t i = 0; i < words.size(); ++i) {
      uint32_t value = pool_[i % pool_.size()] ^ constant;
      constant *= 0x58f38dedU;
      value *= constant;
      words[i] = value ^ (value >> 16);
    }
    std::array<uint64_t, 4> out{};
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = words[2 * i] | (uint64_t{words[2 * i + 1]} << 32);
    }
    return out;
  }

 private:
  static uint32_t hash(uint32_t value, uint32_t& constant) {
    value ^= constant;
    constant *= 0x931e8875U;
    value *= constant;
    return value ^ (value >> 16);
  }
  static uint32_t mix(uint32_t x, uint32_t y) {
    const uint32_t value = x * 0xca01f9ddU - y * 0x4973f715U;
    return value ^ (value >> 16);
  }

  std::array<uint32_t, 4> pool_{};
};

// PCG64 (XSL-RR 128/64) as NumPy seeds and steps it.
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const std::array<uint64_t, 4> words = SeedSequence(seed).state();
    increment_ = (((Word{words[2]} << 64) | words[3]) << 1) | 1;
    step();
    state_ += (Word{words[0]} << 64) | words[1];
    step();
  }

  uint64_t next() {
    step();
    const auto value = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const auto turn = static_cast<unsigned>(state_ >> 122);
    return (value >> turn) | (value << ((64 - turn) & 63));
  }

 private:
  void step() {
    constexpr Word kMultiplier = (Word{2549297995355413924ULL} << 64) | 4865540595714422341ULL;
    state_ = state_ * kMultiplier + increment_;
  }

  Word state_ = 0;
  Word increment_ = 0;
};

bool is_prime(int64_t n) {
  if (n < 4) {
    return n > 1;
  }
  if (n % 2 == 0) {
    return false;
  }
  for (int64_t d = 3; d * d <= n; d += 2) {
    if (n % d == 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<uint64_t> numpy_integers(uint64_t seed, uint64_t bound, int count) {
  // NumPy draws 64-bit integers below 2^32 from halves of a word; the bounds here are far larger.
  Pcg64 generator(seed);
  std::vector<uint64_t> out;
  for (int i = 0; i < count; ++i) {
    Word product = Word{generator.next()} * bound;
    if (static_cast<uint64_t>(product) < bound) {
      const uint64_t threshold = (0 - bound) % bound;
      while (static_cast<uint64_t>(product) < threshold) {
        product = Word{generator.next()} * bound;
      }
    }
    out.push_back(static_cast<uint64_t>(product >> 64));
  }
  return out;
}

namespace {

// The smallest prime above `prime` that no earlier table has.
int64_t next_prime(int64_t prime, const std::unordered_set<int64_t>& seen) {
  do {
    ++prime;
  } while (!is_prime(prime) || seen.count(prime) != 0);
  return prime;
}

}  // namespace

std::vector<EngramTable> engram_tables(const Config& config) {
  std::vector<EngramTable> tables;
  std::unordered_set<int64_t> seen;
  for (const int64_t layer : config.engram_layer_ids) {
    EngramTable table;
    for (int64_t order = 2; order <= config.engram_max_ngram_size; ++order) {
      int64_t prime = config.engram_vocab_size - 1;
      for (int64_t head = 0; head < config.engram_n_heads; ++head) {
        prime = next_prime(prime, seen);
        seen.insert(prime);
        table.offsets.push_back(table.rows);
        table.primes.push_back(prime);
        table.rows += prime;
      }
    }
    const int64_t largest = std::numeric_limits<int64_t>::max();
    const int64_t bound = std::max<int64_t>(1, largest / config.engram_compressed_vocab_size / 2);
    const auto draws =
        numpy_integers(10007 * static_cast<uint64_t>(layer), static_cast<uint64_t>(bound),
                       static_cast<int>(config.engram_max_ngram_size));
    for (const uint64_t draw : draws) {
      table.multipliers.push_back(static_cast<int64_t>(2 * draw + 1));
    }
    tables.push_back(std::move(table));
  }
  return tables;
}

}  // namespace fathom::train
