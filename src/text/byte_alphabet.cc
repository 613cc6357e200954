#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace fathom {
namespace {

constexpr int kFirstStandIn = 0x100;
constexpr int kEndStandIn = 0x144;

constexpr bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

struct Alphabet {
  std::array<uint16_t, 256> symbol{};
  std::array<int16_t, kEndStandIn> byte{};  // -1: not a symbol

  constexpr Alphabet() {
    int next = kFirstStandIn;
    for (auto& b : byte) b = -1;
    for (int b = 0; b < 256; ++b) {
      symbol[b] = static_cast<uint16_t>(is_printable(b) ? b : next++);
      byte[symbol[b]] = static_cast<int16_t>(b);
    }
  }
};

constexpr Alphabet kAlphabet;
static_assert(kAlphabet.byte[kEndStandIn - 1] == 0xAD, "256 bytes: 188 printable, 68 stand-ins");

}  // namespace

char32_t byte_symbol(uint8_t byte) { return kAlphabet.symbol[byte]; }

std::string bytes_to_symbols(std::string_view bytes) {
  std::string symbols;
  for (const char c : bytes) utf8_append(&symbols, byte_symbol(static_cast<uint8_t>(c)));
  return symbols;
}

std::optional<std::string> symbols_to_bytes(std::string_view symbols) {
  std::string bytes;
  while (!symbols.empty()) {
    const Utf8Step step = utf8_step(symbols);
    if (step.kind != Utf8Step::Kind::kCodePoint) return std::nullopt;
    if (step.code_point >= kEndStandIn || kAlphabet.byte[step.code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[step.code_point]));
    symbols.remove_prefix(step.length);
  }
  return bytes;
}

}  // namespace fathom
