#pragma once

// The part of NumPy's default generator that the hash constants depend on: SeedSequence over one
// unsigned integer, PCG64 (XSL-RR), and bounded integers by Lemire's method. The published
// multipliers are defined through it (spec/engram.md 4).

#include <cstdint>

namespace fathom {

class NumpyRandom {
 public:
  explicit NumpyRandom(uint64_t seed);

  uint64_t next();
  // Uniform in [0, bound), as Generator.integers(0, bound) draws; the bound is above 2^32, where
  // the library draws whole 64-bit words.
  uint64_t below(uint64_t bound);

 private:
  __extension__ using Wide = unsigned __int128;

  Wide state_ = 0;
  Wide increment_ = 0;
};

}  // namespace fathom
