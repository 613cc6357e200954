#include "serve/tls.h"

#include "base/file.h"

namespace fathom {
namespace {

namespace asio = boost::asio;

constexpr uint64_t kPemBytesMax = 1 << 20;

Error found(const std::string& path, const char* wanted, const boost::system::error_code& code) {
  return invalid("tls: " + path + ": wanted " + wanted + ", found: " + code.message());
}

}  // namespace

Result<void> load_certificate(asio::ssl::context& context, const std::string& cert_path,
                              const std::string& key_path) {
  using Context = asio::ssl::context;
  FATHOM_ASSIGN_OR_RETURN(const std::string cert, read_file(cert_path, kPemBytesMax));
  FATHOM_ASSIGN_OR_RETURN(const std::string key, read_file(key_path, kPemBytesMax));
  boost::system::error_code code;
  context.set_options(Context::default_workarounds | Context::no_sslv2 | Context::no_sslv3 |
                          Context::no_tlsv1 | Context::no_tlsv1_1 | SSL_OP_NO_RENEGOTIATION,
                      code);
  // Instead of a question on the terminal.
  context.set_password_callback([](size_t, Context::password_purpose) { return std::string(); },
                                code);
  context.use_certificate_chain(asio::buffer(cert), code);
  if (code) return found(cert_path, "certificates in PEM", code);
  context.use_private_key(asio::buffer(key), Context::pem, code);
  if (code) return found(key_path, "the certificate's key in PEM, without a password", code);
  return {};
}

}  // namespace fathom
