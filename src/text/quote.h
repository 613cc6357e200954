#pragma once

// Text from outside, made fit for a one-line message.

#include <cstddef>
#include <string>
#include <string_view>

namespace fathom {

// `text` in double quotes: control characters and ill-formed bytes as \xHH, at most 64 bytes shown.
std::string quote(std::string_view text);

// The same without the quotes, at most `bytes_max` bytes shown.
std::string one_line(std::string_view text, size_t bytes_max);

}  // namespace fathom
