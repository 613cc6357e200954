#pragma once

// Bytes sealed with a secret key: nobody reads them without it, nobody changes them unseen.
// XAES-256-GCM (c2sp.org/XAES-256-GCM): AES-256-GCM under a key that is derived from the first half
// of a nonce of 192 bits, so that nonces may be drawn at random.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

using SecretKey = std::array<uint8_t, 32>;
using SealNonce = std::array<uint8_t, 24>;
using SealTag = std::array<uint8_t, 16>;

// Thread rule: any thread, several at once.
class Sealer {
 public:
  explicit Sealer(const SecretKey& key);
  ~Sealer();
  Sealer(const Sealer&) = delete;
  Sealer& operator=(const Sealer&) = delete;

  // Seals `bytes` (fewer than 2^31) in place. `beside` is not changed and has to be the same where
  // they are opened. A nonce is for one call under a key, ever.
  SealTag seal(const SealNonce& nonce, std::span<const std::byte> beside,
               std::span<std::byte> bytes) const;

  // Opens them in place. False: not what seal() made with this key, and `bytes` hold nothing.
  [[nodiscard]] bool open(const SealNonce& nonce, std::span<const std::byte> beside,
                          std::span<std::byte> bytes, const SealTag& tag) const;

 private:
  struct Ciphers;
  std::unique_ptr<Ciphers> ciphers_;
};

// Another key, which tells nothing about the first one: HKDF-SHA256 (RFC 5869), `purpose` as info.
SecretKey derive_key(const SecretKey& from, std::span<const uint8_t> salt,
                     std::string_view purpose);

// From a file of 32 bytes, or of 64 hexadecimal digits and perhaps a newline. kInvalid, with the
// path and never with what stands in it.
Result<SecretKey> read_key(const std::string& path);

}  // namespace fathom
