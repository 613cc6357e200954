#include "self_signed.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/check.h"

namespace fathom {
namespace {

std::string taken(BIO* memory) {
  char* text = nullptr;
  const auto n = static_cast<size_t>(BIO_get_mem_data(memory, &text));
  std::string out(text, n);
  BIO_free(memory);
  return out;
}

void add_extension(X509* certificate, int id, const char* value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, id, value);
  FATHOM_CHECK(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

}  // namespace

SelfSigned make_self_signed() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("fathom"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  add_extension(certificate, NID_subject_alt_name, "IP:127.0.0.1");
  FATHOM_CHECK(X509_sign(certificate, key, EVP_sha256()) > 0);
  SelfSigned made;
  BIO* memory = BIO_new(BIO_s_mem());
  FATHOM_CHECK(PEM_write_bio_X509(memory, certificate) == 1);
  made.certificate = taken(memory);
  memory = BIO_new(BIO_s_mem());
  FATHOM_CHECK(PEM_write_bio_PrivateKey(memory, key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  made.key = taken(memory);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return made;
}

}  // namespace fathom
