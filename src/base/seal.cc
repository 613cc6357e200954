#include "base/seal.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstring>

#include "base/check.h"
#include "base/file.h"

namespace fathom {
namespace {

constexpr size_t kBlockBytes = 16;   // of AES
constexpr size_t kDerivedFrom = 12;  // bytes of the nonce
using AesBlock = std::array<uint8_t, kBlockBytes>;

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

struct FreeCipher {
  void operator()(EVP_CIPHER* cipher) const { EVP_CIPHER_free(cipher); }
};
using Cipher = std::unique_ptr<EVP_CIPHER, FreeCipher>;

struct FreeKdf {
  void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
  void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
};

Cipher fetch(const char* name) {
  Cipher cipher(EVP_CIPHER_fetch(nullptr, name, nullptr));
  FATHOM_CHECK(cipher != nullptr);
  return cipher;
}

unsigned char* as_chars(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}
const unsigned char* as_chars(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

int length_of(std::span<const std::byte> bytes) {
  FATHOM_CHECK(bytes.size() <= INT_MAX);
  return static_cast<int>(bytes.size());
}

// Twice a block as an element of GF(2^128), as CMAC has it (NIST SP 800-38B).
AesBlock doubled(const AesBlock& block) {
  AesBlock result = {};
  for (size_t i = 0; i < kBlockBytes; ++i) {
    const int below = i + 1 < kBlockBytes ? block.at(i + 1) >> 7 : 0;
    result.at(i) = static_cast<uint8_t>(block.at(i) << 1 | below);
  }
  if ((block[0] & 0x80) != 0) result.back() ^= 0x87;
  return result;
}

}  // namespace

struct Sealer::Ciphers {
  Cipher block = fetch("AES-256-ECB");
  Cipher gcm = fetch("AES-256-GCM");
  SecretKey key = {};
  AesBlock mask = {};  // K1 of CMAC

  ~Ciphers() { OPENSSL_cleanse(key.data(), key.size()); }

  void encrypt(std::span<uint8_t> blocks) const {
    const Context context(EVP_CIPHER_CTX_new());
    int n = 0;
    const auto size = static_cast<int>(blocks.size());
    FATHOM_CHECK(EVP_EncryptInit_ex2(context.get(), block.get(), key.data(), nullptr, nullptr) ==
                 1);
    FATHOM_CHECK(EVP_CIPHER_CTX_set_padding(context.get(), 0) == 1);
    FATHOM_CHECK(EVP_EncryptUpdate(context.get(), blocks.data(), &n, blocks.data(), size) == 1);
    FATHOM_CHECK(n == size);
  }

  // Ready to seal or to open under a nonce, what is beside taken in.
  Context begin(const SealNonce& nonce, std::span<const std::byte> beside, bool to_seal) const {
    std::array<uint8_t, 2 * kBlockBytes> derived = {};
    for (size_t i = 0; i < 2; ++i) {
      const auto half = std::span(derived).subspan(i * kBlockBytes, kBlockBytes);
      half[1] = static_cast<uint8_t>(i + 1);
      half[2] = 'X';
      std::copy_n(nonce.begin(), kDerivedFrom, half.begin() + kBlockBytes - kDerivedFrom);
      for (size_t j = 0; j < kBlockBytes; ++j) half[j] ^= mask.at(j);
    }
    encrypt(derived);
    Context context(EVP_CIPHER_CTX_new());
    const auto init = to_seal ? EVP_EncryptInit_ex2 : EVP_DecryptInit_ex2;
    const auto update = to_seal ? EVP_EncryptUpdate : EVP_DecryptUpdate;
    FATHOM_CHECK(
        init(context.get(), gcm.get(), derived.data(), nonce.data() + kDerivedFrom, nullptr) == 1);
    OPENSSL_cleanse(derived.data(), derived.size());
    int n = 0;
    FATHOM_CHECK(update(context.get(), nullptr, &n, as_chars(beside), length_of(beside)) == 1);
    return context;
  }
};

Sealer::Sealer(const SecretKey& key) : ciphers_(std::make_unique<Ciphers>()) {
  ciphers_->key = key;
  AesBlock zero = {};
  ciphers_->encrypt(zero);
  ciphers_->mask = doubled(zero);
}

Sealer::~Sealer() = default;

SealTag Sealer::seal(const SealNonce& nonce, std::span<const std::byte> beside,
                     std::span<std::byte> bytes) const {
  const Context context = ciphers_->begin(nonce, beside, true);
  int n = 0;
  FATHOM_CHECK(EVP_EncryptUpdate(context.get(), as_chars(bytes), &n, as_chars(bytes),
                                 length_of(bytes)) == 1);
  FATHOM_CHECK(EVP_EncryptFinal_ex(context.get(), as_chars(bytes) + n, &n) == 1);
  SealTag tag = {};
  FATHOM_CHECK(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG,
                                   static_cast<int>(tag.size()), tag.data()) == 1);
  return tag;
}

bool Sealer::open(const SealNonce& nonce, std::span<const std::byte> beside,
                  std::span<std::byte> bytes, const SealTag& tag) const {
  const Context context = ciphers_->begin(nonce, beside, false);
  int n = 0;
  FATHOM_CHECK(EVP_DecryptUpdate(context.get(), as_chars(bytes), &n, as_chars(bytes),
                                 length_of(bytes)) == 1);
  SealTag wanted = tag;  // OpenSSL takes it without const
  FATHOM_CHECK(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG,
                                   static_cast<int>(wanted.size()), wanted.data()) == 1);
  if (EVP_DecryptFinal_ex(context.get(), as_chars(bytes) + n, &n) == 1) return true;
  std::ranges::fill(bytes, std::byte{0});
  return false;
}

SecretKey derive_key(const SecretKey& from, std::span<const uint8_t> salt,
                     std::string_view purpose) {
  const std::unique_ptr<EVP_KDF, FreeKdf> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  FATHOM_CHECK(kdf != nullptr);
  const std::unique_ptr<EVP_KDF_CTX, FreeKdf> context(EVP_KDF_CTX_new(kdf.get()));
  // OpenSSL reads these and takes them without const.
  const auto octets = [](const char* name, const void* data, size_t size) {
    return OSSL_PARAM_construct_octet_string(name, const_cast<void*>(data), size);
  };
  char digest[] = "SHA256";
  const std::array<OSSL_PARAM, 5> parameters = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      octets(OSSL_KDF_PARAM_KEY, from.data(), from.size()),
      octets(OSSL_KDF_PARAM_SALT, salt.data(), salt.size()),
      octets(OSSL_KDF_PARAM_INFO, purpose.data(), purpose.size()), OSSL_PARAM_construct_end()};
  SecretKey key = {};
  FATHOM_CHECK(EVP_KDF_derive(context.get(), key.data(), key.size(), parameters.data()) == 1);
  return key;
}

Result<SecretKey> read_key(const std::string& path) {
  constexpr uint64_t kBytesMax = 4096;
  FATHOM_ASSIGN_OR_RETURN(std::string text, read_file(path, kBytesMax));
  SecretKey key = {};
  if (text.size() == key.size()) {
    std::memcpy(key.data(), text.data(), key.size());
    return key;
  }
  const size_t found = text.size();
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  bool whole = text.size() == 2 * key.size();
  for (size_t i = 0; whole && i < key.size(); ++i) {
    const char* digits = text.data() + 2 * i;
    whole = std::from_chars(digits, digits + 2, key.at(i), 16).ptr == digits + 2;
  }
  if (whole) return key;
  return invalid(path + ": wanted a key of 32 bytes or 64 hexadecimal digits, found " +
                 (found == 2 * key.size() ? "other characters" : std::to_string(found) + " bytes"));
}

}  // namespace fathom
