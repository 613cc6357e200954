#include "text/quote.h"

#include "text/utf8.h"

namespace fathom {
namespace {

// By hand: rooms that quote need not link a library for it.
void append_code(std::string* out, unsigned char byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  *out += "\\x";
  *out += kDigits[byte >> 4];
  *out += kDigits[byte & 15];
}

// How far it came.
size_t append_shown(std::string* out, std::string_view text, size_t bytes_max) {
  size_t pos = 0;
  while (pos < text.size() && pos < bytes_max) {
    const Utf8Step step = utf8_step(text.substr(pos));
    const std::string_view bytes = text.substr(pos, step.length);
    const bool shown = step.kind == Utf8Step::Kind::kCodePoint && step.code_point >= 0x20 &&
                       (step.code_point < 0x7F || step.code_point >= 0xA0);
    if (shown) {
      *out += bytes;
    } else {
      for (const char c : bytes) append_code(out, static_cast<unsigned char>(c));
    }
    pos += step.length;
  }
  return pos;
}

std::string rest_text(std::string_view text, size_t pos) {
  return pos < text.size() ? "... (" + std::to_string(text.size()) + " bytes)" : "";
}

}  // namespace

std::string quote(std::string_view text) {
  constexpr size_t kShownBytes = 64;
  std::string out = "\"";
  const size_t pos = append_shown(&out, text, kShownBytes);
  return out + '"' + rest_text(text, pos);
}

std::string one_line(std::string_view text, size_t bytes_max) {
  std::string out;
  const size_t pos = append_shown(&out, text, bytes_max);
  return out + rest_text(text, pos);
}

}  // namespace fathom
