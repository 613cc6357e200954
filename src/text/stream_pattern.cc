#include "text/stream_pattern.h"

#include "base/check.h"

namespace fathom {

StreamPattern::StreamPattern(std::string_view text, bool with_newlines)
    : text_(text), with_newlines_(with_newlines), fallback_(text.size(), 0) {
  FATHOM_CHECK(!text_.empty());
  FATHOM_CHECK(!with_newlines || text_.find('\n') == std::string::npos);
  size_t border = 0;
  for (size_t i = 1; i < text_.size(); ++i) {
    while (border > 0 && text_[i] != text_[border]) border = fallback_[border - 1];
    if (text_[i] == text_[border]) ++border;
    fallback_[i] = border;
  }
}

bool StreamPattern::feed(char byte) {
  // A match that falls back begins inside the text, where no line feed precedes it.
  while (matched_ > 0 && text_[matched_] != byte) {
    matched_ = fallback_[matched_ - 1];
    newlines_ = 0;
  }
  if (text_[matched_] == byte) {
    ++matched_;
  } else if (with_newlines_ && byte == '\n') {
    ++newlines_;
  } else {
    newlines_ = 0;
  }
  return matched_ == text_.size();
}

void StreamPattern::reset() {
  matched_ = 0;
  newlines_ = 0;
}

}  // namespace fathom
