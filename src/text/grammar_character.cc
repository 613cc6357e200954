#include "text/grammar_character.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "text/utf8.h"

namespace fathom {
namespace {

CharacterSet digits() { return CharacterSet({{'0', '9'}}); }
CharacterSet word_characters() {
  return CharacterSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
}
// WhiteSpace and LineTerminator of ECMA-262.
CharacterSet spaces() {
  return CharacterSet({{0x9, 0xD},
                       {0x20, 0x20},
                       {0xA0, 0xA0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200A},
                       {0x2028, 0x2029},
                       {0x202F, 0x202F},
                       {0x205F, 0x205F},
                       {0x3000, 0x3000},
                       {0xFEFF, 0xFEFF}});
}
CharacterSet one(char32_t c) { return CharacterSet({{c, c}}); }

std::optional<uint32_t> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

class CharacterReader {
 public:
  explicit CharacterReader(PatternText& text) : text_(text) {}

  Result<CharacterSet> bracket() {
    text_.take("[");
    const bool negated = text_.take("^");
    std::vector<CharacterSet::Range> members;
    while (!text_.sees("]")) {
      if (text_.done()) return text_.wrong("]");
      FATHOM_ASSIGN_OR_RETURN(const CharacterSet low, character());
      if (!text_.sees("-") || text_.sees("-]")) {
        members.insert(members.end(), low.ranges().begin(), low.ranges().end());
        continue;
      }
      text_.take("-");
      FATHOM_ASSIGN_OR_RETURN(const CharacterSet high, character());
      const auto single = [](const CharacterSet& s) {
        return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].second;
      };
      if (!single(low) || !single(high) || high.ranges()[0] < low.ranges()[0]) {
        return text_.wrong("a range of two characters in order");
      }
      members.emplace_back(low.ranges()[0].first, high.ranges()[0].first);
    }
    text_.take("]");
    const CharacterSet outside = CharacterSet(std::move(members)).complement();
    return negated ? outside : outside.complement();
  }

  // A character as it stands or an escape.
  Result<CharacterSet> character() {
    if (text_.done()) return text_.wrong("a character");
    const size_t begin = text_.at();
    if (!text_.take("\\")) {
      const char* p = text_.text().data() + begin;
      const char32_t c = utf8_next(&p);
      text_.move_to(static_cast<size_t>(p - text_.text().data()));
      return one(c);
    }
    if (text_.done()) return text_.wrong("a character after \\");
    const char c = text_.next();
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return digits().complement();
      case 'w':
        return word_characters();
      case 'W':
        return word_characters().complement();
      case 's':
        return spaces();
      case 'S':
        return spaces().complement();
      default:
        break;
    }
    constexpr std::string_view kNames = "tnrfv0";
    constexpr std::string_view kValues("\t\n\r\f\v\0", 6);
    const size_t named = kNames.find(c);
    const bool octal = c == '0' && text_.peek() >= '0' && text_.peek() <= '9';
    if (named != std::string_view::npos && !octal)
      return one(static_cast<char32_t>(kValues[named]));
    if (c == 'x') return hexadecimal(2);
    if (c == 'u') return text_.take("{") ? braced() : utf16();
    if (c == 'c' && (text_.peek() | 0x20) >= 'a' && (text_.peek() | 0x20) <= 'z') {
      return one(static_cast<char32_t>(text_.next() & 0x1F));
    }
    const bool word =
        c == '_' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if (!word && static_cast<uint8_t>(c) < 0x80) return one(static_cast<char32_t>(c));
    text_.move_to(begin);
    return text_.wrong("no back reference, \\b, \\p or unknown escape");
  }

 private:
  Result<char32_t> digits_of(int n) {
    char32_t value = 0;
    for (int i = 0; i < n; ++i) {
      const auto digit = hex_digit(text_.peek());
      if (!digit) return text_.wrong("a hexadecimal digit");
      value = value * 16 + *digit;
      text_.next();
    }
    return value;
  }
  Result<CharacterSet> hexadecimal(int n) {
    FATHOM_ASSIGN_OR_RETURN(const char32_t value, digits_of(n));
    return one(value);
  }
  // Four digits, or two surrogates of four.
  Result<CharacterSet> utf16() {
    FATHOM_ASSIGN_OR_RETURN(char32_t value, digits_of(4));
    if (value >= 0xD800 && value < 0xDC00 && text_.take("\\u")) {
      FATHOM_ASSIGN_OR_RETURN(const char32_t low, digits_of(4));
      if (low < 0xDC00 || low > 0xDFFF) return text_.wrong("the second half of a surrogate pair");
      value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
    return scalar(value);
  }
  Result<CharacterSet> braced() {
    char32_t value = 0;
    while (!text_.done() && text_.peek() != '}') {
      FATHOM_ASSIGN_OR_RETURN(const char32_t digit, digits_of(1));
      value = std::min<char32_t>(value * 16 + digit, 0x110000);
    }
    if (!text_.take("}")) return text_.wrong("}");
    return scalar(value);
  }
  Result<CharacterSet> scalar(char32_t value) const {
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      return text_.wrong("an escape of a character", "one of none");
    }
    return one(value);
  }

  PatternText& text_;
};

}  // namespace

Result<CharacterSet> read_class(PatternText& text) { return CharacterReader(text).bracket(); }

Result<CharacterSet> read_character(PatternText& text) { return CharacterReader(text).character(); }

}  // namespace fathom
