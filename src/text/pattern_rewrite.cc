#include "text/pattern_rewrite.h"

#include <fmt/format.h>

#include <optional>

#include "text/quote.h"
#include "text/unicode_classes.h"

namespace fathom {
namespace {

constexpr char32_t kCodePointMax = 0x10FFFF;
constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;

void append_range(std::string* out, char32_t first, char32_t last) {
  // A pattern cannot name surrogates, and no well-formed text has them.
  if (first < kFirstSurrogate && last > kLastSurrogate) {
    append_range(out, first, kFirstSurrogate - 1);
    append_range(out, kLastSurrogate + 1, last);
    return;
  }
  *out += fmt::format("\\x{{{:X}}}", static_cast<uint32_t>(first));
  if (last > first) *out += fmt::format("-\\x{{{:X}}}", static_cast<uint32_t>(last));
}

void append_class(std::string* out, UnicodeClass unicode_class, bool negated) {
  const auto ranges = unicode_class_ranges(unicode_class);
  if (!negated) {
    for (const CodePointRange& range : ranges) append_range(out, range.first, range.last);
    return;
  }
  char32_t next = 0;
  for (const CodePointRange& range : ranges) {
    if (range.first > next) append_range(out, next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kCodePointMax) append_range(out, next, kCodePointMax);
}

std::optional<UnicodeClass> class_of_letter(char letter) {
  switch (letter) {
    case 'L':
      return UnicodeClass::kLetter;
    case 'M':
      return UnicodeClass::kMark;
    case 'N':
      return UnicodeClass::kNumber;
    case 'P':
      return UnicodeClass::kPunctuation;
    case 'S':
      return UnicodeClass::kSymbol;
    default:
      return std::nullopt;
  }
}

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (pos_ < pattern_.size()) {
      const char c = pattern_[pos_];
      if (c == '\\') {
        FATHOM_RETURN_IF_ERROR(escape());
      } else if (in_class_) {
        FATHOM_RETURN_IF_ERROR(class_char(c));
      } else if (c == '[') {
        open_class();
      } else {
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  void copy(size_t n) {
    out_ += pattern_.substr(pos_, n);
    pos_ += n;
  }

  // "[", "[^", and a "]" that stands first and is therefore literal.
  void open_class() {
    in_class_ = true;
    copy(1);
    if (rest().starts_with('^')) copy(1);
    if (rest().starts_with(']')) copy(1);
  }

  Result<void> class_char(char c) {
    if (c == '[') return invalid("has a nested or POSIX class at byte " + std::to_string(pos_));
    if (rest().starts_with("&&")) {
      return invalid("has a class intersection at byte " + std::to_string(pos_));
    }
    if (c == ']') in_class_ = false;
    copy(1);
    return {};
  }

  Result<void> escape() {
    const std::string_view at = rest();
    if (at.size() < 2) return invalid("ends in a backslash");
    const char letter = at[1];
    if (letter == 's' || letter == 'S') {
      put(UnicodeClass::kSpace, letter == 'S');
      pos_ += 2;
      return {};
    }
    if (letter == 'p' || letter == 'P') return property(letter == 'P');
    const bool is_word = (letter | 0x20) >= 'a' && (letter | 0x20) <= 'z';
    const bool is_digit = letter >= '0' && letter <= '9';
    if (is_digit || (is_word && std::string_view("rntfx").find(letter) == std::string_view::npos)) {
      return unsupported(at.substr(0, 2));
    }
    copy(2);
    return {};
  }

  // \p{X} or \P{X}, X one of L M N P S, or ^X.
  Result<void> property(bool negated) {
    const std::string_view at = rest();
    const size_t close = at.find('}');
    if (at.size() < 3 || at[2] != '{' || close == at.npos) return unsupported(at.substr(0, 3));
    std::string_view name = at.substr(3, close - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const auto unicode_class = name.size() == 1 ? class_of_letter(name[0]) : std::nullopt;
    if (!unicode_class) return unsupported(at.substr(0, close + 1));
    put(*unicode_class, negated);
    pos_ += close + 1;
    return {};
  }

  void put(UnicodeClass unicode_class, bool negated) {
    if (in_class_) return append_class(&out_, unicode_class, negated);
    out_ += '[';
    append_class(&out_, unicode_class, negated);
    out_ += ']';
  }

  Result<void> unsupported(std::string_view what) const {
    return invalid(
        fmt::format("has {} at byte {}, which is not supported (classes are \\p{{L}} "
                    "\\p{{M}} \\p{{N}} \\p{{P}} \\p{{S}} \\s)",
                    quote(what), pos_));
  }

  std::string_view rest() const { return pattern_.substr(pos_); }

  std::string_view pattern_;
  size_t pos_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

Result<std::string> rewrite_pattern(std::string_view pattern) { return Rewriter(pattern).run(); }

}  // namespace fathom
