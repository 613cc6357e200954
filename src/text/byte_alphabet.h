#pragma once

// The alphabet in which a byte-level vocabulary writes bytes as printable characters: the 188
// printable Latin-1 characters stand for themselves, the other 68 bytes, in order, for U+0100 to
// U+0143. Source: spec/tokenizer.md section 2 (the GPT-2 byte alphabet).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fathom {

// The character that stands for a byte.
char32_t byte_symbol(uint8_t byte);

// The UTF-8 string of symbols for a string of bytes.
std::string bytes_to_symbols(std::string_view bytes);

// The inverse; nothing if `symbols` has a character outside the alphabet or is not UTF-8.
std::optional<std::string> symbols_to_bytes(std::string_view symbols);

}  // namespace fathom
