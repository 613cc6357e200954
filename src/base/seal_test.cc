// Goal: what is sealed is read with its key alone and unchanged alone; keys are read as they are
// written. Method: published test vectors; every bit turned round; every length about a block.
#include "base/seal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <vector>

#include "base/folder_testing.h"
#include "base/hash.h"

namespace fathom {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

SecretKey key_of(uint8_t byte) {
  SecretKey key = {};
  key.fill(byte);
  return key;
}

SealNonce nonce_of(std::string_view text) {
  SealNonce nonce = {};
  std::copy_n(text.begin(), nonce.size(), nonce.begin());
  return nonce;
}

std::string sealed_hex(uint8_t key, std::string_view beside) {
  std::vector<std::byte> bytes = bytes_of("XAES-256-GCM");
  const SealTag tag =
      Sealer(key_of(key)).seal(nonce_of("ABCDEFGHIJKLMNOPQRSTUVWX"), bytes_of(beside), bytes);
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  return to_hex({data, bytes.size()}) + to_hex(tag);
}

// The two vectors of c2sp.org/XAES-256-GCM: with either value of the bit that doubling carries out.
TEST(Sealer, AgreesWithThePublishedVectors) {
  EXPECT_EQ(sealed_hex(1, ""), "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271");
  EXPECT_EQ(sealed_hex(3, "c2sp.org/XAES-256-GCM"),
            "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d");
}

TEST(Sealer, OpensWhatItSealedAndNothingElse) {
  const Sealer sealer(key_of(7));
  const Sealer other(key_of(8));
  const SealNonce nonce = nonce_of("abcdefghijklmnopqrstuvwx");
  for (const size_t size : {0, 1, 15, 16, 17, 3000}) {
    std::vector<std::byte> clear(size);
    for (size_t i = 0; i < size; ++i) clear[i] = static_cast<std::byte>(i * 31 + 5);
    std::vector<std::byte> beside = bytes_of("header");
    std::vector<std::byte> sealed = clear;
    const SealTag tag = sealer.seal(nonce, beside, sealed);
    EXPECT_TRUE(size <= 1 || sealed != clear);
    const auto opens = [&](const Sealer& with) {
      std::vector<std::byte> bytes = sealed;
      const bool opened = with.open(nonce, beside, bytes, tag);
      EXPECT_EQ(bytes, opened ? clear : std::vector<std::byte>(size)) << "size " << size;
      return opened;
    };
    EXPECT_TRUE(opens(sealer));
    EXPECT_FALSE(opens(other));
    for (std::vector<std::byte>* part : {&sealed, &beside}) {
      for (size_t bit = 0; bit<8 * part->size(); bit += part->size()> 100 ? 97 : 1) {
        (*part)[bit / 8] ^= std::byte{1} << (bit % 8);
        EXPECT_FALSE(opens(sealer)) << "size " << size << " bit " << bit;
        (*part)[bit / 8] ^= std::byte{1} << (bit % 8);
      }
    }
    for (size_t bit = 0; bit < 8 * nonce.size(); ++bit) {
      SealNonce turned = nonce;
      turned[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
      std::vector<std::byte> bytes = sealed;
      EXPECT_FALSE(sealer.open(turned, beside, bytes, tag)) << "bit " << bit;
    }
    for (size_t bit = 0; bit < 8 * tag.size(); ++bit) {
      SealTag turned = tag;
      turned[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
      std::vector<std::byte> bytes = sealed;
      EXPECT_FALSE(sealer.open(nonce, beside, bytes, turned)) << "bit " << bit;
    }
  }
}

// The vectors of RFC 5869 have keys of other lengths; this value is of Python's hmac.
TEST(DeriveKey, IsHkdf) {
  const SecretKey key = derive_key(key_of(0x0b), key_of(1), "fathom");
  EXPECT_EQ(to_hex(key), "944218689c74414e555daf42f99e1bf549b3e8f99bd4afcaab01e0014ed073f0");
}

TEST(DeriveKey, DiffersByKeySaltAndPurpose) {
  std::set<SecretKey> keys;
  for (const uint8_t from : {1, 2}) {
    for (const uint8_t salt : {1, 2}) {
      for (const char* purpose : {"a", "b", ""}) {
        keys.insert(derive_key(key_of(from), key_of(salt), purpose));
      }
    }
  }
  EXPECT_EQ(keys.size(), 12U);
}

class ReadKey : public FolderTest {
 protected:
  Result<SecretKey> read(const std::string& text) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder() + "/key", std::ios::binary) << text;
    return read_key(folder() + "/key");
  }
};

TEST_F(ReadKey, TakesBytesAndDigits) {
  std::string bytes;
  std::string digits;
  for (int i = 0; i < 32; ++i) {
    bytes += static_cast<char>(i * 8);
    digits += to_hex(std::array<uint8_t, 1>{static_cast<uint8_t>(i * 8)});
  }
  const auto raw = read(bytes);
  ASSERT_TRUE(raw);
  EXPECT_EQ(to_hex(*raw), digits);
  for (const std::string& text : {digits, digits + "\n", digits + "\r\n"}) {
    const auto key = read(text);
    ASSERT_TRUE(key) << key.error().message;
    EXPECT_EQ(*key, *raw);
  }
}

TEST_F(ReadKey, RefusesOthersByPathAlone) {
  const std::string where = folder() + "/key: wanted a key of 32 bytes or 64 hexadecimal digits, ";
  for (const auto& [text, found] :
       std::map<std::string, std::string>{{"", "found 0 bytes"},
                                          {"secret", "found 6 bytes"},
                                          {std::string(33, 'a'), "found 33 bytes"},
                                          {std::string(62, 'a') + "g1", "found other characters"},
                                          {std::string(62, 'a') + "1g", "found other characters"},
                                          {std::string(62, 'a') + " 1", "found other characters"},
                                          {std::string(64, 'a') + "\n\n", "found 66 bytes"}}) {
    const auto key = read(text);
    ASSERT_FALSE(key) << text;
    EXPECT_EQ(key.error().message, where + found);
  }
  EXPECT_EQ(read_key(folder() + "/none").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace fathom
