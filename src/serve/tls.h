#pragma once

// TLS of the server: its certificate and key.

#include <boost/asio/ssl/context.hpp>
#include <string>

#include "base/result.h"

namespace fathom {

// TLS 1.2 and later. Both files are PEM, the first with the chain up to the root; errors name the
// file.
Result<void> load_certificate(boost::asio::ssl::context& context, const std::string& cert_path,
                              const std::string& key_path);

}  // namespace fathom
