#include "train/corpus/data_html.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "text/utf8.h"

namespace fathom::train {
namespace {

enum class TagKind { kInline, kBlock, kDropped, kPre, kItem, kCell, kBreak };

const std::unordered_map<std::string_view, TagKind>& tag_kinds() {
  static const auto* kinds = [] {
    auto* map = new std::unordered_map<std::string_view, TagKind>;
    for (const char* name :
         {"p",       "div",        "section", "article",    "main",    "body", "html",
          "table",   "tr",         "thead",   "tbody",      "ul",      "ol",   "dl",
          "dt",      "dd",         "h1",      "h2",         "h3",      "h4",   "h5",
          "h6",      "blockquote", "figure",  "figcaption", "caption", "hr",   "address",
          "details", "summary",    "form",    "fieldset"}) {
      map->emplace(name, TagKind::kBlock);
    }
    for (const char* name :
         {"script", "style", "head", "nav", "header", "footer", "svg", "noscript", "select",
          "button", "template", "aside", "math", "iframe", "object"}) {
      map->emplace(name, TagKind::kDropped);
    }
    for (const char* name : {"pre", "textarea"}) map->emplace(name, TagKind::kPre);
    map->emplace("li", TagKind::kItem);
    for (const char* name : {"td", "th"}) map->emplace(name, TagKind::kCell);
    map->emplace("br", TagKind::kBreak);
    return map;
  }();
  return *kinds;
}

const std::unordered_map<std::string_view, uint32_t>& entities() {
  static const auto* map = new std::unordered_map<std::string_view, uint32_t>{
      {"amp", '&'},       {"lt", '<'},       {"gt", '>'},        {"quot", '"'},
      {"apos", '\''},     {"nbsp", ' '},     {"mdash", 0x2014},  {"ndash", 0x2013},
      {"lsquo", 0x2018},  {"rsquo", 0x2019}, {"ldquo", 0x201C},  {"rdquo", 0x201D},
      {"hellip", 0x2026}, {"copy", 0xA9},    {"reg", 0xAE},      {"trade", 0x2122},
      {"times", 0xD7},    {"deg", 0xB0},     {"middot", 0xB7},   {"bull", 0x2022},
      {"laquo", 0xAB},    {"raquo", 0xBB},   {"le", 0x2264},     {"ge", 0x2265},
      {"ne", 0x2260},     {"minus", 0x2212}, {"plusmn", 0xB1},   {"rarr", 0x2192},
      {"larr", 0x2190},   {"rArr", 0x21D2},  {"harr", 0x2194},   {"infin", 0x221E},
      {"sum", 0x2211},    {"alpha", 0x3B1},  {"beta", 0x3B2},    {"gamma", 0x3B3},
      {"lambda", 0x3BB},  {"mu", 0x3BC},     {"pi", 0x3C0},      {"sigma", 0x3C3},
      {"eacute", 0xE9},   {"egrave", 0xE8},  {"uuml", 0xFC},     {"ouml", 0xF6},
      {"auml", 0xE4},     {"szlig", 0xDF},   {"oslash", 0xF8},   {"ccedil", 0xE7},
      {"ntilde", 0xF1},   {"aacute", 0xE1},  {"frac12", 0xBD},   {"micro", 0xB5},
      {"sect", 0xA7},     {"para", 0},       {"shy", 0},         {"zwnj", 0},
      {"lang", 0x27E8},   {"rang", 0x27E9},  {"thinsp", ' '},    {"ensp", ' '},
      {"emsp", ' '},      {"isin", 0x2208},  {"forall", 0x2200}, {"exist", 0x2203},
      {"sup2", 0xB2}};
  return *map;
}

std::optional<uint32_t> entity_value(std::string_view name) {
  if (name.size() < 2 || name[0] != '#') {
    const auto found = entities().find(name);
    if (found == entities().end()) return std::nullopt;
    return found->second;
  }
  uint32_t value = 0;
  const bool hex = name[1] == 'x' || name[1] == 'X';
  for (char c : name.substr(hex ? 2 : 1)) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    const int low = c | 32;
    if (!digit && !(hex && low >= 'a' && low <= 'f')) return std::nullopt;
    value = value * (hex ? 16 : 10) + static_cast<uint32_t>(digit ? c - '0' : low - 'a' + 10);
    if (value > 0x10FFFF) return std::nullopt;
  }
  if (value >= 0xD800 && value < 0xE000) return std::nullopt;
  return value == 0xA0 ? ' ' : value;
}

class Stripper {
 public:
  explicit Stripper(std::string_view html) : html_(html) {}

  std::string run() {
    while (at_ < html_.size()) {
      const char c = html_[at_];
      if (c == '<' && tag()) continue;
      if (c == '&' && entity()) continue;
      text(c);
      ++at_;
    }
    return finish();
  }

 private:
  // Consumes a tag or comment at at_; false when the '<' is plain text.
  bool tag() {
    if (html_.substr(at_, 4) == "<!--") {
      at_ = after("-->", at_ + 4);
      return true;
    }
    size_t name_begin = at_ + 1;
    const bool closing = name_begin < html_.size() && html_[name_begin] == '/';
    if (closing) ++name_begin;
    if (name_begin >= html_.size()) return false;
    const auto first = static_cast<unsigned char>(html_[name_begin]);
    if (!std::isalpha(first) && first != '!' && first != '?') return false;
    size_t name_end = name_begin;
    std::string name;
    while (name_end < html_.size() && std::isalnum(static_cast<unsigned char>(html_[name_end]))) {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(html_[name_end++])));
    }
    const size_t tag_end = after(">", name_end);
    const std::string_view attributes = html_.substr(name_end, tag_end - name_end);
    at_ = tag_end;
    apply(name, closing, attributes);
    return true;
  }

  void apply(const std::string& name, bool closing, std::string_view attributes) {
    const auto found = tag_kinds().find(name);
    if (name == "a" && !closing && attributes.find("headerlink") != attributes.npos) {
      at_ = after("</a>", at_);
      return;
    }
    if (found == tag_kinds().end()) return;
    switch (found->second) {
      case TagKind::kDropped:
        // "header" holds the title on some sites, but navigation on most.
        if (!closing && !attributes.ends_with("/>")) at_ = after_close(name);
        break;
      case TagKind::kPre:
        newline(2);
        pre_ = closing ? std::max(0, pre_ - 1) : pre_ + 1;
        break;
      case TagKind::kItem:
        if (!closing) newline(1), out_ += "- ", space_ = false;
        break;
      case TagKind::kCell:
        if (!closing && !out_.empty() && out_.back() != '\n') out_ += "  ";
        break;
      case TagKind::kBreak:
        newline(1);
        break;
      case TagKind::kBlock:
        newline(name == "tr" || name == "dd" || name == "div" ? 1 : 2);
        break;
      case TagKind::kInline:
        break;
    }
  }

  bool entity() {
    const size_t end = html_.find(';', at_);
    if (end == std::string_view::npos || end - at_ > 10) return false;
    const auto value = entity_value(html_.substr(at_ + 1, end - at_ - 1));
    if (!value) return false;
    at_ = end + 1;
    if (*value < 0x80 && *value != 0) {
      text(static_cast<char>(*value));
    } else if (*value != 0xB6) {  // the pilcrow of heading links
      flush_space();
      if (*value != 0) utf8_append(&out_, *value);
    }
    return true;
  }

  void text(char c) {
    if (pre_ > 0) {
      if (c != '\r') out_ += c;
      return;
    }
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f') {
      space_ = true;
      return;
    }
    flush_space();
    out_ += c;
  }

  void flush_space() {
    if (space_ && !out_.empty() && out_.back() != '\n' && out_.back() != ' ') out_ += ' ';
    space_ = false;
  }

  void newline(int count) {
    space_ = false;
    while (!out_.empty() && pre_ == 0 && out_.back() == ' ') out_.pop_back();
    int have = 0;
    for (size_t i = out_.size(); i > 0 && out_[i - 1] == '\n'; --i) ++have;
    if (out_.empty()) return;
    for (; have < count; ++have) out_ += '\n';
  }

  size_t after(std::string_view what, size_t from) const {
    const size_t found = html_.find(what, from);
    return found == std::string_view::npos ? html_.size() : found + what.size();
  }

  // The position after </name>, letter case ignored.
  size_t after_close(const std::string& name) const {
    for (size_t at = html_.find("</", at_); at != std::string_view::npos;
         at = html_.find("</", at + 2)) {
      const std::string_view candidate = html_.substr(at + 2, name.size());
      const bool same = candidate.size() == name.size() &&
                        std::equal(name.begin(), name.end(), candidate.begin(), [](char a, char b) {
                          return a == (b >= 'A' && b <= 'Z' ? b + 32 : b);
                        });
      if (same) return after(">", at);
    }
    return html_.size();
  }

  // Removes trailing blanks of lines and third newlines, and the pilcrow that heading links leave.
  std::string finish() const {
    std::string result;
    int newlines = 0;
    for (size_t i = 0; i < out_.size(); ++i) {
      const char c = out_[i];
      if (c == '\xC2' && i + 1 < out_.size() && (out_[i + 1] == '\xB6' || out_[i + 1] == '\xA0')) {
        if (out_[++i] == '\xA0') result += ' ';  // the space that does not break
        continue;
      }
      if (c == '\n') {
        while (!result.empty() && (result.back() == ' ' || result.back() == '\t'))
          result.pop_back();
        if (++newlines > 2 || result.empty()) continue;
      } else if (c != ' ' && c != '\t') {
        newlines = 0;
      }
      result += c;
    }
    while (!result.empty() && std::isspace(static_cast<unsigned char>(result.back()))) {
      result.pop_back();
    }
    if (!result.empty()) result += '\n';
    return result;
  }

  std::string_view html_;
  size_t at_ = 0;
  int pre_ = 0;
  bool space_ = false;
  std::string out_;
};

}  // namespace

std::string html_to_text(std::string_view html) { return Stripper(html).run(); }

}  // namespace fathom::train
