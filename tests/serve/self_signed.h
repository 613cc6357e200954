#pragma once

// A certificate for 127.0.0.1 that vouches for itself, made on the spot, and its key; both PEM.

#include <string>

namespace fathom {

struct SelfSigned {
  std::string certificate;
  std::string key;
};

SelfSigned make_self_signed();

}  // namespace fathom
