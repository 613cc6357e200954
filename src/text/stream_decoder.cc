#include "text/stream_decoder.h"

#include "text/utf8.h"

namespace fathom {

Result<std::string> StreamDecoder::push(TokenId id) {
  FATHOM_RETURN_IF_ERROR(tokenizer_.check_ids({&id, 1}));
  std::string text;
  if (special_ == SpecialTokens::kSkip && tokenizer_.is_special(id)) return text;
  held_ += tokenizer_.token_bytes(id);
  held_.erase(0, utf8_append_decided(held_, &text));
  return text;
}

std::string StreamDecoder::flush() {
  std::string text;
  // The held bytes are one maximal subpart.
  if (!held_.empty()) utf8_append(&text, kReplacementCharacter);
  held_.clear();
  return text;
}

}  // namespace fathom
