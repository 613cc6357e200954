#pragma once

// UTF-8 as the tokenizer needs it: never fails, never reads past the end, never loses a byte.
// Ill-formed bytes are grouped by the "maximal subpart" rule of the Unicode Standard, chapter 3.9.

#include <cstdint>
#include <string>
#include <string_view>

namespace fathom {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

struct Utf8Step {
  enum class Kind : uint8_t {
    kCodePoint,   // `length` bytes are the well-formed code point `code_point`
    kIllFormed,   // `length` bytes are one maximal ill-formed subpart
    kIncomplete,  // `length` bytes, up to the end of the text, begin a well-formed code point
  };
  Kind kind = Kind::kIllFormed;
  uint8_t length = 0;
  char32_t code_point = 0;
};

// The step at the start of `text`, which is not empty.
Utf8Step utf8_step(std::string_view text);

// The code point at `p` of a text that is known to be well-formed; adds its length to *p.
char32_t utf8_next(const char** p);

// The code points of a text that is known to be well-formed.
std::u32string utf8_characters(std::string_view text);

void utf8_append(std::string* out, char32_t code_point);

// Length of the longest prefix of `text` that is well-formed.
size_t utf8_valid_prefix(std::string_view text);

// Appends to *out what `bytes` say for certain: code points as they are, U+FFFD for each maximal
// ill-formed subpart. Returns the number of bytes used; the rest is a valid but incomplete
// sequence of at most 3 bytes, which later bytes may complete.
size_t utf8_append_decided(std::string_view bytes, std::string* out);

}  // namespace fathom
