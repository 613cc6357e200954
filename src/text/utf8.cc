#include "text/utf8.h"

#include <cstring>

#include "base/check.h"

namespace fathom {
namespace {

// What a lead byte asks for: the number of continuation bytes and the range of the first of them,
// which excludes overlong forms, surrogates and code points above U+10FFFF.
struct Lead {
  uint8_t n_continuation = 0;
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0};
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  FATHOM_DCHECK(!text.empty());
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return {Utf8Step::Kind::kCodePoint, 1, first};
  const Lead lead = lead_of(first);
  if (lead.n_continuation == 0) return {Utf8Step::Kind::kIllFormed, 1, 0};
  char32_t code_point = first & (0x3F >> lead.n_continuation);
  for (uint8_t i = 1; i <= lead.n_continuation; ++i) {
    if (i == text.size()) return {Utf8Step::Kind::kIncomplete, i, 0};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.second_min : 0x80;
    const uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return {Utf8Step::Kind::kIllFormed, i, 0};
    code_point = (code_point << 6) | (byte & 0x3F);
  }
  return {Utf8Step::Kind::kCodePoint, static_cast<uint8_t>(lead.n_continuation + 1), code_point};
}

char32_t utf8_next(const char** p) {
  const auto* s = reinterpret_cast<const unsigned char*>(*p);
  if (s[0] < 0x80) {
    *p += 1;
    return s[0];
  }
  if (s[0] < 0xE0) {
    *p += 2;
    return ((s[0] & 0x1Fu) << 6) | (s[1] & 0x3Fu);
  }
  if (s[0] < 0xF0) {
    *p += 3;
    return ((s[0] & 0x0Fu) << 12) | ((s[1] & 0x3Fu) << 6) | (s[2] & 0x3Fu);
  }
  *p += 4;
  return ((s[0] & 0x07u) << 18) | ((s[1] & 0x3Fu) << 12) | ((s[2] & 0x3Fu) << 6) | (s[3] & 0x3Fu);
}

std::u32string utf8_characters(std::string_view text) {
  std::u32string characters;
  for (const char* p = text.data(); p < text.data() + text.size();) {
    characters.push_back(utf8_next(&p));
  }
  return characters;
}

void utf8_append(std::string* out, char32_t code_point) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)));
  };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (code_point >> 6)));
    tail(0);
  } else if (code_point < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (code_point >> 12)));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | (code_point >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

size_t utf8_valid_prefix(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    while (pos + 8 <= text.size()) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + pos, 8);
      if ((word & 0x8080808080808080u) != 0) break;
      pos += 8;
    }
    if (pos == text.size()) break;
    const Utf8Step step = utf8_step(text.substr(pos));
    if (step.kind != Utf8Step::Kind::kCodePoint) break;
    pos += step.length;
  }
  return pos;
}

size_t utf8_append_decided(std::string_view bytes, std::string* out) {
  size_t pos = 0;
  while (pos < bytes.size()) {
    const size_t valid = utf8_valid_prefix(bytes.substr(pos));
    out->append(bytes.substr(pos, valid));
    pos += valid;
    if (pos == bytes.size()) break;
    const Utf8Step step = utf8_step(bytes.substr(pos));
    if (step.kind == Utf8Step::Kind::kIncomplete) break;
    utf8_append(out, kReplacementCharacter);
    pos += step.length;
  }
  return pos;
}

}  // namespace fathom
