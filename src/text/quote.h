#pragma once

// Text from outside, made fit for a one-line message.

#include <string>
#include <string_view>

namespace fathom {

// `text` in double quotes: control characters and ill-formed bytes as \xHH, at most 64 bytes shown.
std::string quote(std::string_view text);

}  // namespace fathom
