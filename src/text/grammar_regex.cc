#include "text/grammar_regex.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "text/quote.h"
#include "text/utf8.h"

namespace fathom {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr int kGroupsMax = 100;  // around one another

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
CharacterSet any_but_line_ends() {
  return CharacterSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).complement();
}
CharacterSet any_character() { return CharacterSet().complement(); }
CharacterSet one(char32_t c) { return CharacterSet({{c, c}}); }

std::optional<uint32_t> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

class RegexReader {
 public:
  RegexReader(GrammarBuilder& builder, std::string_view pattern, const RegexOptions& options,
              const std::string& where)
      : builder_(builder), text_(pattern), options_(options), where_(where) {}

  Result<Expr> read() {
    FATHOM_ASSIGN_OR_RETURN(const Expr whole, alternatives());
    if (!done()) return wrong("an expression", "a closing bracket");
    return whole;
  }

 private:
  bool done() const { return at_ == text_.size(); }
  bool sees(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!sees(what)) return false;
    at_ += what.size();
    return true;
  }
  Error wrong(const std::string& wanted, const std::string& found) const {
    return invalid(where_ + ": byte " + std::to_string(at_) + ": wanted " + wanted + ", found " +
                   found);
  }
  std::string shown() const { return done() ? "the end" : quote(text_.substr(at_, 8)); }
  Error wrong(const std::string& wanted) const { return wrong(wanted, shown()); }

  Expr spelled(const CharacterSet& set) {
    return options_.spell ? options_.spell(builder_, set) : builder_.characters(set);
  }

  Result<Expr> alternatives() {
    std::vector<Expr> parts;
    do {
      FATHOM_ASSIGN_OR_RETURN(const Expr part, terms());
      parts.push_back(part);
    } while (take("|"));
    return builder_.choice(std::move(parts));
  }

  // One alternative. Where it is not inside a group, ^ and $ may stand around it.
  Result<Expr> terms() {
    const bool outer = n_groups_ == 0;
    const bool from_start = outer && take("^");
    bool to_end = false;
    std::vector<Expr> parts;
    if (outer && options_.search && !from_start) parts.push_back(anything());
    while (!done() && !sees("|") && !sees(")")) {
      if (outer && take("$")) {
        to_end = true;
        if (!done() && !sees("|") && !sees(")")) return wrong("$ at the end");
        break;
      }
      FATHOM_ASSIGN_OR_RETURN(const Expr part, quantified());
      parts.push_back(part);
    }
    if (outer && options_.search && !to_end) parts.push_back(anything());
    return builder_.sequence(std::move(parts));
  }

  Expr anything() { return builder_.repeat(spelled(any_character()), 0, -1); }

  Result<Expr> quantified() {
    FATHOM_ASSIGN_OR_RETURN(const Expr part, atom());
    int64_t low = 1;
    int64_t high = 1;
    if (take("*")) {
      low = 0, high = -1;
    } else if (take("+")) {
      high = -1;
    } else if (take("?")) {
      low = 0;
    } else if (take("{")) {
      FATHOM_RETURN_IF_ERROR(counts(low, high));
    } else {
      return part;
    }
    take("?");
    if (sees("*") || sees("+") || sees("?") || sees("{")) return wrong("one quantifier");
    return builder_.repeat(part, low, high);
  }

  Result<void> counts(int64_t& low, int64_t& high) {
    FATHOM_ASSIGN_OR_RETURN(low, count());
    high = low;
    if (take(",")) {
      high = -1;
      if (!sees("}")) {
        FATHOM_ASSIGN_OR_RETURN(high, count());
      }
    }
    if (high >= 0 && high < low) return wrong("counts in order");
    if (!take("}")) return wrong("}");
    return {};
  }

  Result<int64_t> count() {
    const size_t begin = at_;
    int64_t value = 0;
    for (; !done() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = std::min(value * 10 + (text_[at_] - '0'), kGrammarCountMax + 1);
    }
    if (at_ == begin) return wrong("a count");
    if (value > kGrammarCountMax) {
      return wrong("a count of at most " + std::to_string(kGrammarCountMax), "a larger one");
    }
    return value;
  }

  Result<Expr> atom() {
    if (sees("(")) return group();
    if (sees("[")) {
      FATHOM_ASSIGN_OR_RETURN(const CharacterSet set, bracket());
      return spelled(set);
    }
    if (take(".")) return spelled(any_but_line_ends());
    if (sees("*") || sees("+") || sees("?") || sees("{")) return wrong("something to repeat");
    if (sees("^") || sees("$")) return wrong("^ at the start and $ at the end alone");
    if (sees("]") || sees("}")) return wrong("a bracket that was opened");
    FATHOM_ASSIGN_OR_RETURN(const CharacterSet set, character());
    return spelled(set);
  }

  Result<Expr> group() {
    for (const std::string_view around : {"(?=", "(?!", "(?<=", "(?<!"}) {
      if (sees(around)) return wrong("no look-around");
    }
    const size_t begin = at_;
    take("(");
    if (take("?")) {
      const bool named = take("<");
      while (named && !done() && text_[at_] != '>') ++at_;
      if (!take(named ? ">" : ":")) {
        at_ = begin;
        return wrong("a group without flags");
      }
    }
    if (++n_groups_ > kGroupsMax) {
      return wrong("at most " + std::to_string(kGroupsMax) + " groups around one another", "more");
    }
    FATHOM_ASSIGN_OR_RETURN(const Expr inner, alternatives());
    --n_groups_;
    if (!take(")")) return wrong(")");
    return inner;
  }

  Result<CharacterSet> bracket() {
    take("[");
    const bool negated = take("^");
    std::vector<CharacterSet::Range> members;
    while (!sees("]")) {
      if (done()) return wrong("]");
      FATHOM_ASSIGN_OR_RETURN(const CharacterSet low, character());
      if (!sees("-") || text_.substr(at_).starts_with("-]")) {
        members.insert(members.end(), low.ranges().begin(), low.ranges().end());
        continue;
      }
      take("-");
      FATHOM_ASSIGN_OR_RETURN(const CharacterSet high, character());
      const auto single = [](const CharacterSet& s) {
        return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].second;
      };
      if (!single(low) || !single(high) || high.ranges()[0] < low.ranges()[0]) {
        return wrong("a range of two characters in order");
      }
      members.emplace_back(low.ranges()[0].first, high.ranges()[0].first);
    }
    take("]");
    const CharacterSet outside = CharacterSet(std::move(members)).complement();
    return negated ? outside : outside.complement();
  }

  // A character as it stands or an escape.
  Result<CharacterSet> character() {
    if (done()) return wrong("a character");
    if (!take("\\")) {
      const char* p = text_.data() + at_;
      const char32_t c = utf8_next(&p);
      at_ = static_cast<size_t>(p - text_.data());
      return one(c);
    }
    if (done()) return wrong("a character after \\");
    const char c = text_[at_];
    const size_t begin = at_++;
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
    const bool octal = c == '0' && !done() && text_[at_] >= '0' && text_[at_] <= '9';
    if (named != std::string_view::npos && !octal)
      return one(static_cast<char32_t>(kValues[named]));
    if (c == 'x') return hexadecimal(2);
    if (c == 'u') return take("{") ? braced() : utf16();
    if (c == 'c' && !done() && ((text_[at_] | 0x20) >= 'a' && (text_[at_] | 0x20) <= 'z')) {
      return one(static_cast<char32_t>(text_[at_++] & 0x1F));
    }
    const bool word =
        c == '_' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if (!word && static_cast<uint8_t>(c) < 0x80) return one(static_cast<char32_t>(c));
    at_ = begin - 1;
    return wrong("no back reference, \\b, \\p or unknown escape");
  }

  Result<char32_t> digits_of(int n) {
    char32_t value = 0;
    for (int i = 0; i < n; ++i) {
      const auto digit = done() ? std::nullopt : hex_digit(text_[at_]);
      if (!digit) return wrong("a hexadecimal digit");
      value = value * 16 + *digit;
      ++at_;
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
    if (value >= 0xD800 && value < 0xDC00 && take("\\u")) {
      FATHOM_ASSIGN_OR_RETURN(const char32_t low, digits_of(4));
      if (low < 0xDC00 || low > 0xDFFF) return wrong("the second half of a surrogate pair");
      value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
    return scalar(value);
  }
  Result<CharacterSet> braced() {
    char32_t value = 0;
    while (!done() && text_[at_] != '}') {
      FATHOM_ASSIGN_OR_RETURN(const char32_t digit, digits_of(1));
      value = std::min<char32_t>(value * 16 + digit, 0x110000);
    }
    if (!take("}")) return wrong("}");
    return scalar(value);
  }
  Result<CharacterSet> scalar(char32_t value) const {
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      return wrong("an escape of a character", "one of none");
    }
    return one(value);
  }

  GrammarBuilder& builder_;
  std::string_view text_;
  const RegexOptions& options_;
  const std::string& where_;
  size_t at_ = 0;
  int n_groups_ = 0;
};

}  // namespace

Result<Expr> add_regex(GrammarBuilder& builder, std::string_view pattern,
                       const RegexOptions& options, const std::string& where) {
  const size_t valid = utf8_valid_prefix(pattern);
  if (valid != pattern.size()) {
    return invalid(where + ": byte " + std::to_string(valid) +
                   ": wanted UTF-8, found ill-formed bytes");
  }
  if (pattern.size() > kGrammarTextMax) {
    return exhausted(where + ": wanted at most " + std::to_string(kGrammarTextMax) +
                     " bytes, found " + std::to_string(pattern.size()));
  }
  return RegexReader(builder, pattern, options, where).read();
}

Result<Grammar> regex_grammar(std::string_view pattern, const std::string& where,
                              const GrammarFrame& frame) {
  GrammarBuilder builder;
  FATHOM_ASSIGN_OR_RETURN(const Expr whole, add_regex(builder, pattern, {}, where));
  return builder.finish(whole, frame, where);
}

}  // namespace fathom
