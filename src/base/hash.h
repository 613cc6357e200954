#pragma once

// SHA-256 of bytes, one call or in pieces. Thread rule: one object, one thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace fathom {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const std::byte> bytes);
  Sha256Digest finish();  // at most once

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);

// In a time that does not depend on where they differ.
bool equal_in_constant_time(const Sha256Digest& a, const Sha256Digest& b);

// Lower-case hexadecimal.
std::string to_hex(std::span<const uint8_t> bytes);

// Bytes that nobody can guess.
std::array<uint8_t, 32> secret_bytes();

}  // namespace fathom
