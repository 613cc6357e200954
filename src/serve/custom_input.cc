#include "serve/custom_input.h"

#include <utility>

#include "text/json_text.h"

namespace fathom {
namespace {

constexpr std::string_view kOpening = "{\"input\": \"";

// Length of the escape at the start of the text; 0: it is not whole yet.
size_t escape_length(std::string_view text) {
  if (text.size() < 2) return 0;
  const size_t length = text[1] == 'u' ? 6 : 2;
  return text.size() < length ? 0 : length;
}

}  // namespace

std::string CustomInput::push(std::string_view piece) {
  held_ += piece;
  if (state_ == State::kStart) {
    if (held_.size() < kOpening.size() && kOpening.starts_with(held_)) return {};
    const bool matches = held_.starts_with(kOpening);
    state_ = matches ? State::kText : State::kRaw;
    if (matches) held_.erase(0, kOpening.size());
  }
  if (state_ == State::kText) return unescape();
  if (state_ == State::kEnded) held_.clear();
  return std::exchange(held_, {});
}

std::string CustomInput::unescape() {
  std::string text;
  size_t at = 0;
  while (at < held_.size()) {
    if (held_[at] == '"') {
      state_ = State::kEnded;
      held_.clear();
      return text;
    }
    if (held_[at] != '\\') {
      text += held_[at++];
      continue;
    }
    const size_t length = escape_length(std::string_view(held_).substr(at));
    if (length == 0) break;
    // The escapes are those that append_json_escaped() writes: no surrogates.
    const Result<Json> one = parse_json("\"" + held_.substr(at, length) + "\"");
    if (one) text += *one->as_string();
    at += length;
  }
  held_.erase(0, at);
  return text;
}

std::string CustomInput::flush() {
  return state_ == State::kStart ? std::exchange(held_, {}) : std::string();
}

}  // namespace fathom
