#include "text/pretokenizer.h"

#include "text/utf8.h"

namespace fathom {

Result<Pretokenizer> Pretokenizer::create(const std::vector<std::string>& patterns) {
  Pretokenizer pretokenizer;
  if (patterns == ReleasedSplit::patterns()) {
    pretokenizer.released_.emplace();
    return pretokenizer;
  }
  FATHOM_ASSIGN_OR_RETURN(pretokenizer.regex_, RegexSplit::compile(patterns));
  return pretokenizer;
}

Result<void> Pretokenizer::split_valid(std::string_view text, size_t base, Scratch* scratch,
                                       std::vector<size_t>* ends) const {
  if (!released_) return regex_->split(text, base, scratch, ends);
  released_->split(text, base, ends);
  return {};
}

Result<void> Pretokenizer::split(std::string_view text, Scratch* scratch,
                                 std::vector<size_t>* ends) const {
  size_t pos = 0;
  while (pos < text.size()) {
    const size_t valid = utf8_valid_prefix(text.substr(pos));
    FATHOM_RETURN_IF_ERROR(split_valid(text.substr(pos, valid), pos, scratch, ends));
    pos += valid;
    const size_t bad_begin = pos;
    while (pos < text.size()) {
      const Utf8Step step = utf8_step(text.substr(pos));
      if (step.kind == Utf8Step::Kind::kCodePoint) break;
      pos += step.length;
    }
    if (pos > bad_begin) ends->push_back(pos);
  }
  return {};
}

}  // namespace fathom
