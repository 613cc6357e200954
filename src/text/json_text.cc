#include "text/json_text.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "text/utf8.h"

namespace fathom {
namespace {

// Objects with more members than this get an index of their keys while they are read, so that a
// request of many keys costs no quadratic time.
constexpr size_t kIndexedMembers = 16;

constexpr int kExponentFormFrom = 16;   // 1e16 and above
constexpr int kExponentFormBelow = -4;  // below 1e-4

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Parser {
 public:
  Parser(std::string_view text, const JsonLimits& limits)
      : text_(text), depth_max_(limits.depth_max), repeated_keys_(limits.repeated_keys) {}

  Result<Json> parse() {
    FATHOM_ASSIGN_OR_RETURN(Json value, parse_value(0));
    skip_space();
    if (at_ < text_.size()) return wanted("the end");
    return value;
  }

 private:
  Error wanted(const std::string& what) const {
    std::string found = "the end";
    if (at_ < text_.size()) {
      const auto byte = static_cast<unsigned char>(text_[at_]);
      found = byte > 0x20 && byte < 0x7F ? std::string("'") + text_[at_] + "'"
                                         : "byte " + std::to_string(byte);
    }
    return invalid("JSON: byte " + std::to_string(at_) + ": wanted " + what + ", found " + found);
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Result<Json> parse_value(int depth) {
    skip_space();
    if (at_ >= text_.size()) return wanted("a value");
    switch (text_[at_]) {
      case '{':
        return parse_object(depth + 1);
      case '[':
        return parse_array(depth + 1);
      case '"': {
        FATHOM_ASSIGN_OR_RETURN(std::string value, parse_string());
        return Json(std::move(value));
      }
      default:
        break;
    }
    if (take_word("null")) return Json();
    if (take_word("true")) return Json(true);
    if (take_word("false")) return Json(false);
    return parse_number();
  }

  Result<Json> parse_array(int depth) {
    if (depth > depth_max_) return too_deep();
    ++at_;
    JsonArray items;
    skip_space();
    if (take(']')) return Json(std::move(items));
    while (true) {
      FATHOM_ASSIGN_OR_RETURN(Json item, parse_value(depth));
      items.push_back(std::move(item));
      skip_space();
      if (take(']')) return Json(std::move(items));
      if (!take(',')) return wanted("',' or ']'");
    }
  }

  Result<Json> parse_object(int depth) {
    if (depth > depth_max_) return too_deep();
    ++at_;
    JsonObject members;
    std::unordered_map<std::string, size_t> index;
    skip_space();
    if (take('}')) return Json(std::move(members));
    while (true) {
      skip_space();
      if (at_ >= text_.size() || text_[at_] != '"') return wanted("a key in quotes");
      FATHOM_ASSIGN_OR_RETURN(std::string key, parse_string());
      skip_space();
      if (!take(':')) return wanted("':'");
      FATHOM_ASSIGN_OR_RETURN(Json value, parse_value(depth));
      const bool again = insert(&members, &index, key, std::move(value));
      if (again && !repeated_keys_) {
        return invalid("JSON: byte " + std::to_string(at_) + ": wanted each key once, found " +
                       json_quoted(key) + " again");
      }
      skip_space();
      if (take('}')) return Json(std::move(members));
      if (!take(',')) return wanted("',' or '}'");
    }
  }

  // Whether the key was there.
  static bool insert(JsonObject* members, std::unordered_map<std::string, size_t>* index,
                     const std::string& key, Json value) {
    if (members->size() == kIndexedMembers && index->empty()) {
      for (size_t i = 0; i < members->size(); ++i) index->emplace((*members)[i].key, i);
    }
    JsonMember* known = nullptr;
    if (index->empty()) {
      for (JsonMember& member : *members) {
        if (member.key == key) known = &member;
      }
    } else if (const auto it = index->find(key); it != index->end()) {
      known = &(*members)[it->second];
    }
    if (known != nullptr) {
      known->value = std::move(value);
      return true;
    }
    if (!index->empty()) index->emplace(key, members->size());
    members->push_back({key, std::move(value)});
    return false;
  }

  Result<std::string> parse_string() {
    ++at_;
    std::string value;
    while (true) {
      const size_t run = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 0x20) {
        ++at_;
      }
      const std::string_view raw = text_.substr(run, at_ - run);
      if (const size_t good = utf8_valid_prefix(raw); good < raw.size()) {
        at_ = run + good;
        return wanted("well-formed UTF-8");
      }
      value.append(raw);
      if (take('"')) return value;
      if (!take('\\')) return wanted("'\"' or an escaped control character");
      FATHOM_RETURN_IF_ERROR(parse_escape(&value));
    }
  }

  Result<void> parse_escape(std::string* value) {
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    if (take('u')) return parse_unicode_escape(value);
    const size_t letter = at_ < text_.size() ? kLetters.find(text_[at_]) : std::string_view::npos;
    if (letter == std::string_view::npos) return wanted("an escape letter");
    value->push_back(kMeanings[letter]);
    ++at_;
    return {};
  }

  Result<void> parse_unicode_escape(std::string* value) {
    FATHOM_ASSIGN_OR_RETURN(char32_t code, parse_hex4());
    if (code >= 0xDC00 && code <= 0xDFFF) return wanted("a leading surrogate before this one");
    if (code >= 0xD800 && code <= 0xDBFF) {
      if (!take_word("\\u")) return wanted("the trailing surrogate");
      FATHOM_ASSIGN_OR_RETURN(const char32_t trail, parse_hex4());
      if (trail < 0xDC00 || trail > 0xDFFF) return wanted("a trailing surrogate before this");
      code = 0x10000 + ((code - 0xD800) << 10) + (trail - 0xDC00);
    }
    utf8_append(value, code);
    return {};
  }

  Result<char32_t> parse_hex4() {
    char32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      char32_t digit = 0;
      if (is_digit(c)) {
        digit = static_cast<char32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<char32_t>(c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<char32_t>(c - 'A' + 10);
      } else {
        return wanted("a hexadecimal digit");
      }
      code = code * 16 + digit;
      ++at_;
    }
    return code;
  }

  Result<Json> parse_number() {
    const size_t start = at_;
    take('-');
    if (at_ >= text_.size() || !is_digit(text_[at_])) {
      if (at_ == start) return wanted("a value");
      return wanted("a digit");
    }
    const size_t whole = at_;
    skip_digits();
    if (text_[whole] == '0' && at_ > whole + 1) {
      at_ = whole + 1;
      return wanted("no digit after a leading zero");
    }
    bool integer = true;
    if (take('.')) {
      integer = false;
      if (!skip_digits()) return wanted("a digit");
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      integer = false;
      ++at_;
      if (!take('+')) take('-');
      if (!skip_digits()) return wanted("a digit");
    }
    return number_value(text_.substr(start, at_ - start), integer);
  }

  bool skip_digits() {
    const size_t start = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ > start;
  }

  Result<Json> number_value(std::string_view literal, bool integer) {
    const char* begin = literal.data();
    const char* end = begin + literal.size();
    if (integer && literal != "-0") {
      int64_t whole = 0;
      if (std::from_chars(begin, end, whole).ec == std::errc()) return Json(whole);
      uint64_t natural = 0;
      if (std::from_chars(begin, end, natural).ec == std::errc()) return Json(natural);
    }
    double value = 0;
    const auto read = std::from_chars(begin, end, value);
    if (read.ec == std::errc() && std::isfinite(value)) return Json(value);
    if (is_tiny(literal)) return Json(literal.front() == '-' ? -0.0 : 0.0);
    at_ -= literal.size();
    return wanted("a number within the range of a double");
  }

  // Of a literal outside the range of a double: whether it is too small and not too large. Both
  // are hundreds of decimal digits away from one, so the place of the first digit decides.
  static bool is_tiny(std::string_view literal) {
    const size_t e = literal.find_first_of("eE");
    const std::string_view mantissa = literal.substr(0, e);
    int64_t exponent = 0;
    if (e != std::string_view::npos) {
      const bool negative = literal[e + 1] == '-';
      const std::string_view digits = literal.substr(literal.find_first_of("0123456789", e + 1));
      // Far beyond any literal's digits, and no sum with their count overflows.
      constexpr auto kFar = std::numeric_limits<int64_t>::max() / 2;
      if (std::from_chars(digits.data(), digits.data() + digits.size(), exponent).ec !=
          std::errc()) {
        exponent = kFar;
      }
      exponent = std::min(exponent, kFar);
      if (negative) exponent = -exponent;
    }
    const size_t first = mantissa.find_first_of("123456789");
    if (first == std::string_view::npos) return true;
    const auto point = static_cast<int64_t>(std::min(mantissa.find('.'), mantissa.size()));
    return point - static_cast<int64_t>(first) + exponent < 0;
  }

  Error too_deep() const {
    return invalid("JSON: byte " + std::to_string(at_) + ": wanted at most " +
                   std::to_string(depth_max_) + " values inside each other, found more");
  }

  std::string_view text_;
  int depth_max_;
  bool repeated_keys_;
  size_t at_ = 0;
};

void append_value(std::string* out, const Json& value);

void append_array(std::string* out, const JsonArray& items) {
  out->push_back('[');
  const char* separator = "";
  for (const Json& item : items) {
    out->append(separator);
    append_value(out, item);
    separator = ", ";
  }
  out->push_back(']');
}

void append_object(std::string* out, const JsonObject& members) {
  out->push_back('{');
  const char* separator = "";
  for (const JsonMember& member : members) {
    out->append(separator).append(json_quoted(member.key)).append(": ");
    append_value(out, member.value);
    separator = ", ";
  }
  out->push_back('}');
}

void append_value(std::string* out, const Json& value) {
  if (const auto* items = value.as_array()) {
    append_array(out, *items);
  } else if (const auto* members = value.as_object()) {
    append_object(out, *members);
  } else if (const auto* text = value.as_string()) {
    out->append(json_quoted(*text));
  } else if (const auto* flag = value.as_bool()) {
    out->append(*flag ? "true" : "false");
  } else if (const auto* whole = value.as_int64()) {
    out->append(std::to_string(*whole));
  } else if (const auto* natural = value.as_uint64()) {
    out->append(std::to_string(*natural));
  } else if (const auto* real = value.as_double()) {
    out->append(json_double(*real));
  } else {
    out->append("null");
  }
}

}  // namespace

const Json* Json::find(std::string_view key) const {
  const JsonObject* members = as_object();
  if (members == nullptr) return nullptr;
  for (const JsonMember& member : *members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

const char* Json::kind_name() const {
  if (is_null()) return "null";
  if (as_bool() != nullptr) return "a boolean";
  if (as_string() != nullptr) return "a string";
  if (as_array() != nullptr) return "an array";
  if (as_object() != nullptr) return "an object";
  return "a number";
}

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return exhausted("JSON: wanted at most " + std::to_string(limits.bytes_max) + " bytes, found " +
                     std::to_string(text.size()));
  }
  return Parser(text, limits).parse();
}

std::string json_text(const Json& value) {
  std::string out;
  append_value(&out, value);
  return out;
}

std::optional<int64_t> whole_number(double value) {
  if (!(std::fabs(value) < 0x1p53) || std::trunc(value) != value) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::string json_double(double value) {
  FATHOM_CHECK(std::isfinite(value));
  char buffer[40];
  const auto written =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<size_t>(written.ptr - buffer));
  const size_t e = shortest.find('e');
  int exponent = 0;
  const char* exponent_text = shortest.data() + e + 1 + (shortest[e + 1] == '+' ? 1 : 0);
  std::from_chars(exponent_text, written.ptr, exponent);

  std::string out(shortest.front() == '-' ? 1 : 0, '-');
  std::string digits;
  for (const char c : shortest.substr(0, e)) {
    if (is_digit(c)) digits.push_back(c);
  }
  if (exponent >= kExponentFormFrom || exponent < kExponentFormBelow) {
    out.append(digits, 0, 1);
    if (digits.size() > 1) out.append(1, '.').append(digits, 1);
    const std::string magnitude = std::to_string(std::abs(exponent));
    out.append(1, 'e').append(1, exponent < 0 ? '-' : '+');
    out.append(magnitude.size() < 2 ? 1 : 0, '0').append(magnitude);
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  } else {
    const size_t whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= whole) digits.append(whole - digits.size() + 1, '0');
    out.append(digits, 0, whole).append(1, '.').append(digits, whole);
  }
  return out;
}

void append_json_escaped(std::string* out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
  constexpr std::string_view kLetters = "\"\\bfnrt";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (const size_t i = kShort.find(c); i != std::string_view::npos) {
      out->push_back('\\');
      out->push_back(kLetters[i]);
    } else if (byte < 0x20) {
      out->append("\\u00");
      out->push_back(kHex[byte >> 4]);
      out->push_back(kHex[byte & 15]);
    } else {
      out->push_back(c);
    }
  }
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(&out, text);
  out.push_back('"');
  return out;
}

}  // namespace fathom
