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
  const bool broke = matched_ > 0 && text_[matched_] != byte;
  if (broke) newlines_ = 0;  // what is left of the match begins inside the text
  while (matched_ > 0 && text_[matched_] != byte) matched_ = fallback_[matched_ - 1];
  if (text_[matched_] == byte) {
    ++matched_;
  } else if (with_newlines_ && byte == '\n' && !broke) {
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
