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

}  // namespace

std::string quote(std::string_view text) {
  constexpr size_t kShownBytes = 64;
  std::string out = "\"";
  size_t pos = 0;
  while (pos < text.size() && pos < kShownBytes) {
    const Utf8Step step = utf8_step(text.substr(pos));
    const std::string_view bytes = text.substr(pos, step.length);
    const bool shown = step.kind == Utf8Step::Kind::kCodePoint && step.code_point >= 0x20 &&
                       (step.code_point < 0x7F || step.code_point >= 0xA0);
    if (shown) {
      out += bytes;
    } else {
      for (const char c : bytes) append_code(&out, static_cast<unsigned char>(c));
    }
    pos += step.length;
  }
  out += '"';
  if (pos < text.size()) out += "... (" + std::to_string(text.size()) + " bytes)";
  return out;
}

}  // namespace fathom
