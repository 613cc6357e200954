#include "lexer.h"

#include <cctype>

namespace fathom::tidy {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Copies text to out with literals (and comments) blanked; one method per lexical element.
class Blanker {
 public:
  Blanker(const std::string& text, bool keep_comments)
      : text_(text), out_(text), keep_comments_(keep_comments) {}

  std::string run() {
    while (at_ < text_.size()) step();
    return out_;
  }

 private:
  void step() {
    if (looking_at("//")) {
      skip_to(text_.find('\n', at_), 0, !keep_comments_);
    } else if (looking_at("/*")) {
      skip_to(text_.find("*/", at_ + 2), 2, !keep_comments_);
    } else if (looking_at("R\"") && !follows_word()) {
      raw_string();
    } else if (text_[at_] == '"' || (text_[at_] == '\'' && !follows_word())) {
      quoted(text_[at_]);
    } else {
      ++at_;
    }
  }

  bool looking_at(std::string_view what) const {
    return std::string_view(text_).substr(at_, what.size()) == what;
  }

  // An apostrophe after a digit separates digits; an R after a letter is no raw string.
  bool follows_word() const { return at_ > 0 && is_word(text_[at_ - 1]); }

  void skip_to(size_t end, size_t more, bool blank) {
    end = end == std::string::npos ? text_.size() : end + more;
    for (; at_ < end; ++at_) {
      if (blank && text_[at_] != '\n') out_[at_] = ' ';
    }
  }

  void raw_string() {
    const size_t open = text_.find('(', at_);
    if (open == std::string::npos) {
      skip_to(open, 0, true);
      return;
    }
    const std::string close = ")" + text_.substr(at_ + 2, open - at_ - 2) + "\"";
    out_[at_] = ' ';
    ++at_;
    const size_t begin = at_;
    skip_to(text_.find(close, open), close.size(), true);
    out_[begin] = '"';
    out_[at_ - 1] = '"';
  }

  void quoted(char quote) {
    for (++at_; at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n'; ++at_) {
      out_[at_] = ' ';
      if (text_[at_] != '\\' || at_ + 1 >= text_.size()) continue;
      ++at_;
      if (text_[at_] != '\n') out_[at_] = ' ';
    }
    ++at_;
  }

  const std::string& text_;
  std::string out_;
  bool keep_comments_;
  size_t at_ = 0;
};

// The end of a preprocessor line that starts at `at`, continuations included.
size_t directive_end(const std::string& text, size_t at) {
  size_t end = text.find('\n', at);
  while (end != std::string::npos && end > 0 && text[end - 1] == '\\') {
    end = text.find('\n', end + 1);
  }
  return end == std::string::npos ? text.size() : end;
}

size_t token_length(const std::string& text, size_t at) {
  if (is_word(text[at])) {
    size_t end = at;
    while (end < text.size() && (is_word(text[end]) || text[end] == '\'')) ++end;
    return end - at;
  }
  const std::string_view two = std::string_view(text).substr(at, 2);
  return two == "::" || two == "->" ? 2 : 1;
}

}  // namespace

std::string blank_literals(const std::string& text, bool keep_comments) {
  return Blanker(text, keep_comments).run();
}

std::vector<Token> tokenize(const std::string& blanked) {
  std::vector<Token> tokens;
  int line = 1;
  bool line_is_empty = true;
  for (size_t at = 0; at < blanked.size();) {
    const char c = blanked[at];
    size_t next = at + 1;
    if (c == '#' && line_is_empty) {
      next = directive_end(blanked, at);
    } else if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      next = at + token_length(blanked, at);
      tokens.push_back({std::string_view(blanked).substr(at, next - at), line});
      line_is_empty = false;
    }
    for (; at < next; ++at) {
      if (blanked[at] != '\n') continue;
      ++line;
      line_is_empty = true;
    }
  }
  return tokens;
}

}  // namespace fathom::tidy
