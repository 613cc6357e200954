#include "text/python_literal.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "text/utf8.h"

namespace fathom {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

class LiteralReader {
 public:
  LiteralReader(std::string_view source, size_t at) : source_(source), at_(at) {}

  // One literal or several side by side; stops after the last one.
  Result<std::string> read_joined() {
    std::string value;
    bool any = false;
    int open = 0;
    while (true) {
      skip_blank(open > 0);
      if (peek() == '(' && !any) {
        ++open;
        ++at_;
      } else if (starts_literal()) {
        FATHOM_RETURN_IF_ERROR(read_one(&value));
        any = true;
      } else {
        break;
      }
    }
    if (!any) return invalid("wanted a string literal, found something else");
    for (; open > 0; --open) {
      skip_blank(true);
      if (peek() != ')') return invalid("wanted only string literals in parentheses");
      ++at_;
    }
    skip_blank(false);
    if (at_ < source_.size() && peek() != '\n' && peek() != '\r' && peek() != ';') {
      return invalid("wanted only a string, found an expression");
    }
    return value;
  }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }

  // What is not yet read: empty also after an escape that the end of the source cut short.
  std::string_view rest() const { return source_.substr(std::min(at_, source_.size())); }

  // Spaces, comments and continued lines; also line ends inside parentheses.
  void skip_blank(bool lines) {
    while (at_ < source_.size()) {
      const char c = peek();
      if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else if (c == '\\' && peek(1) == '\n') {
        at_ += 2;
      } else if (c == '#') {
        while (at_ < source_.size() && peek() != '\n') ++at_;
      } else {
        return;
      }
    }
  }

  bool starts_literal() const {
    size_t i = 0;
    while (i < 2 && is_name_char(peek(i))) ++i;
    return peek(i) == '"' || peek(i) == '\'';
  }

  Result<void> read_one(std::string* value) {
    bool raw = false;
    for (; is_name_char(peek()); ++at_) {
      const char prefix = static_cast<char>(peek() | 0x20);
      if (prefix != 'r' && prefix != 'u' && prefix != 'f') {
        return invalid("wanted a string, found a literal with the prefix " +
                       std::string(1, prefix));
      }
      raw = raw || prefix == 'r';
    }
    const char quote = peek();
    const size_t width = peek(1) == quote && peek(2) == quote ? 3 : 1;
    const std::string closing(width, quote);
    at_ += width;
    while (rest().substr(0, width) != closing) {
      if (rest().empty() || (width == 1 && peek() == '\n')) {
        return invalid("wanted the end of a string literal, found the end of the " +
                       std::string(rest().empty() ? "file" : "line"));
      }
      if (peek() != '\\') {
        read_char(value);
      } else if (raw) {
        value->append(rest().substr(0, 2));
        at_ += 2;
      } else {
        FATHOM_RETURN_IF_ERROR(read_escape(value));
      }
    }
    at_ += width;
    return {};
  }

  // Python reads every line end as a line feed.
  void read_char(std::string* value) {
    if (peek() != '\r') {
      value->push_back(peek());
    } else if (peek(1) != '\n') {
      value->push_back('\n');
    }
    ++at_;
  }

  Result<void> read_escape(std::string* value) {
    constexpr std::string_view kLetters = "\\'\"abfnrtv";
    constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const char letter = peek(1);
    at_ += 2;
    if (letter == '\n') return {};
    if (const size_t i = kLetters.find(letter); i != std::string_view::npos) {
      value->push_back(kMeanings[i]);
      return {};
    }
    switch (letter) {
      case 'x':
        return read_code(2, 16, value);
      case 'u':
        return read_code(4, 16, value);
      case 'U':
        return read_code(8, 16, value);
      case 'N':
        return invalid("wanted an escape by number, found one by name (\\N)");
      default:
        break;
    }
    if (letter >= '0' && letter <= '7') {
      --at_;
      size_t digits = 0;
      while (digits < 3 && peek(digits) >= '0' && peek(digits) <= '7') ++digits;
      return read_code(digits, 8, value);
    }
    value->push_back('\\');  // Python keeps an escape that it does not know
    --at_;
    return {};
  }

  Result<void> read_code(size_t digits, int base, std::string* value) {
    const std::string_view text = rest().substr(0, digits);
    uint32_t code = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), code, base);
    if (text.size() < digits || read.ptr != text.data() + digits) {
      return invalid("wanted " + std::to_string(digits) + " digits in an escape, found fewer");
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      return invalid("wanted a character in an escape, found code " + std::to_string(code));
    }
    utf8_append(value, code);
    at_ += digits;
    return {};
  }

  std::string_view source_;
  size_t at_;
};

// The place after the "=" of the assignment whose line starts at `line`, or npos.
size_t assignment_value(std::string_view source, size_t line, std::string_view name) {
  if (source.substr(line, name.size()) != name) return std::string_view::npos;
  size_t at = line + name.size();
  while (at < source.size() && source[at] == ' ') ++at;
  if (at < source.size() && source[at] == ':') {
    while (at < source.size() && source[at] != '=' && source[at] != '\n') ++at;
  }
  const bool assigned = source.substr(at, 1) == "=" && source.substr(at, 2) != "==";
  return assigned ? at + 1 : std::string_view::npos;
}

}  // namespace

Result<std::optional<std::string>> find_python_string(std::string_view source,
                                                      std::string_view name) {
  size_t line = 0;
  while (line < source.size()) {
    const size_t at = assignment_value(source, line, name);
    if (at != std::string_view::npos) {
      auto value = LiteralReader(source, at).read_joined();
      if (!value) return invalid(std::string(name) + ": " + value.error().message);
      return std::optional<std::string>(std::move(*value));
    }
    const size_t end = source.find('\n', line);
    line = end == std::string_view::npos ? source.size() : end + 1;
  }
  return std::optional<std::string>();
}

}  // namespace fathom
